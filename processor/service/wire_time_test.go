package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/schema"
)

// TestExpiredForEveryRequest: a document does not exist from its deadline on, even while
// the writer is too busy to expire it.
func TestExpiredForEveryRequest(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":10}`)
		ids := []string{"get", "create", "upsert", "replace", "patch", "delete", "batch"}
		var ts int64
		for _, id := range ids {
			ts = w.TS(w.Want(201, "document.create.c."+id, `{}`))
		}
		before := w.End()
		processortest.SleepUntil(ts+9, 999)
		release := w.HoldWriter()
		defer release()
		processortest.SleepUntil(ts+10, 0)
		w.Want(404, "document.get.c.get", "")
		r := w.Want(200, "batch.c", `{"operations":[{"op":"get","id":"get"},{"op":"get","id":"batch"}]}`)
		if n := strings.Count(string(r.Body), `"code":404,"error"`); n != 2 {
			t.Errorf("the batch reads %s", r.Body)
		}
		if r := w.Want(200, "forecast.c", `{"defaultTtl":-1}`); !strings.Contains(string(r.Body), `"overdue":7`) {
			t.Errorf("the forecast is %s", r.Body)
		}
		if r := w.Want(200, "collection.get.c", ""); !strings.Contains(string(r.Body), `"documents":0,"bytes":0`) {
			t.Errorf("the collection is %s", r.Body)
		}
		var s schema.Status
		w.Check(json.Unmarshal(w.Want(200, "status", "").Body, &s))
		if s.Documents != 0 || s.PendingExpiry != 0 || s.Overdue != 7 {
			t.Errorf("the status is %+v", s)
		}
		if w.End() != before {
			t.Error("something was logged while the writer was held")
		}
		// Requests sent now are decided before the sweep has its turn.
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Want(201, "document.create.c.create", `{}`)
			w.Want(201, "document.upsert.c.upsert", `{}`)
			w.Want(404, "document.replace.c.replace", `{}`)
			w.Want(404, "document.patch.c.patch", `{}`)
			w.Want(404, "document.delete.c.delete", "")
			w.Want(200, "batch.c", `{"operations":[{"op":"delete","id":"batch"},{"op":"create","id":"batch","body":{}}]}`)
		}()
		synctest.Wait()
		release()
		<-done
		time.Sleep(time.Second)
		for _, id := range ids {
			var story []string
			for _, e := range w.Events() {
				if string(e.ID) == id {
					story = append(story, e.Type.String())
				}
			}
			want := "DocumentCreated DocumentExpired"
			if id == "create" || id == "upsert" || id == "batch" {
				want += " DocumentCreated"
			}
			if got := strings.Join(story, " "); got != want {
				t.Errorf("%s: %s, want %s", id, got, want)
			}
		}
	})
}

// TestMinSeq: a request waits for a sequence, for two seconds at most.
func TestMinSeq(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		now := w.End()
		for _, test := range []struct {
			name, seq string
			code      int
			error     string
		}{
			{"past", "1", 200, ""},
			{"zero", "0", 200, ""},
			{"now", fmt.Sprint(now), 200, ""},
			{"to come", fmt.Sprint(now + 1), 504, "timeout"},
			{"never", fmt.Sprint(uint64(1<<64 - 1)), 504, "timeout"},
			{"no number", "x", 400, "bad_request"},
			{"negative", "-1", 400, "bad_request"},
			{"a fraction", "1.5", 400, "bad_request"},
			{"too large", "18446744073709551616", 400, "bad_request"},
			{"many digits", strings.Repeat("9", 100_000), 400, "bad_request"},
			{"zeros", strings.Repeat("0", 1000) + "1", 200, ""},
			{"a blank", " 1", 200, ""},
			{"nothing", "", 400, "bad_request"},
			{"a plus", "+1", 400, "bad_request"},
			{"an exponent", "1e0", 400, "bad_request"},
			{"hexadecimal", "0x1", 400, "bad_request"},
			{"grouped", "1_0", 400, "bad_request"},
			{"not ASCII", "٣", 400, "bad_request"},
		} {
			for _, tail := range []string{"collection.get.c", "collection.list", "status", "batch.c", "document.upsert.c.a"} {
				if test.code == 200 && tail == "document.upsert.c.a" {
					continue
				}
				began := time.Now()
				r := w.Ask(tail, map[string]string{"batch.c": `{"operations":[]}`, "document.upsert.c.a": `{}`}[tail], "Lapse-Min-Seq", test.seq)
				if r.Code != test.code || r.Error != test.error {
					t.Errorf("%s: %s came out with %s", test.name, tail, r)
				}
				if waited := time.Since(began); (waited >= 2*time.Second) != (test.code == 504) || waited > 2*time.Second+10*time.Millisecond {
					t.Errorf("%s: %s took %s", test.name, tail, waited)
				}
			}
		}
		if w.End() != now {
			t.Fatal("a request that timed out changed something")
		}
		answered := make(chan processortest.Reply)
		go func() { answered <- w.Ask("document.get.c.a", "", "Lapse-Min-Seq", fmt.Sprint(now+1)) }()
		time.Sleep(time.Second)
		w.Want(201, "document.create.c.a", `{}`)
		began := time.Now()
		if r := <-answered; r.Code != 200 || r.Seq < now+1 || time.Since(began) > 0 {
			t.Errorf("%s after %s more", r, time.Since(began))
		}
		w.Inside().Service.Wait(service.MaxWaiting)
		if r := w.Refused(429, "overloaded", "document.get.c.a", "", "Lapse-Min-Seq", "1000000"); !strings.Contains(r.Message, "later") {
			t.Errorf("where too many wait: %s", r)
		}
		w.Inside().Service.Wait(-service.MaxWaiting)
	})
}
