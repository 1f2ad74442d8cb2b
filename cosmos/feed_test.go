package cosmos_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
)

const latest, all = "Incremental Feed", "Full-Fidelity Feed"

// poll reads a page of a change feed after a continuation, "" for the beginning. It returns the
// ids of the items, of those that are deleted with a minus, and the next continuation.
func (w *world) poll(mode, after string, headers ...string) (ids, next string) {
	w.Helper()
	headers = append(headers, "A-IM", mode)
	if after != "" {
		headers = append(headers, "If-None-Match", after)
	}
	answer := w.ask("GET", "", headers...)
	if answer.Code == http.StatusNotModified {
		return "", answer.Header().Get("Etag")
	}
	var page struct {
		Documents []struct {
			ID       string
			Metadata struct{ ID, OperationType string }
		}
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &page); err != nil || answer.Code != http.StatusOK {
		w.Fatalf("%d %s, %v", answer.Code, answer.Body, err)
	}
	var list []string
	for _, row := range page.Documents {
		id := row.ID + row.Metadata.ID
		if row.Metadata.OperationType == "delete" {
			id = "-" + id
		}
		list = append(list, id)
	}
	return strings.Join(list, " "), answer.Header().Get("Etag")
}

// consumers returns the names of the log's consumers.
func (w *world) consumers() (names []string) {
	synctest.Wait()
	for name := range w.log.ConsumerNames(w.Context()).Name() {
		names = append(names, name)
	}
	return names
}

// TestFeedFromMemory: all feeds of a database share one reader of the log, by which they are
// read without requests. What a reply has shown is not missed, also before the reader has it.
func TestFeedFromMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, begin := w.poll(all, "*")
		w.create("a", "b")
		check(t, client.Delete(t.Context(), w.orders, "a"))
		w.create("c")
		time.Sleep(2 * time.Second)
		w.poll(all, begin) // reads the definition again, now with a reader
		sent := w.nc.Stats().OutMsgs
		ids, end := w.poll(all, begin)
		if ids != "a b -a c" {
			t.Errorf("all versions are %q", ids)
		}
		for range 5 {
			time.Sleep(2 * time.Second)
			if ids, next := w.poll(all, end); ids != "" || next != end {
				t.Errorf("after the end are %q, and %s after %s", ids, next, end)
			}
			if ids, next := w.poll(latest, end); ids != "" || next != end {
				t.Errorf("after the end are the items %q, and %s after %s", ids, next, end)
			}
		}
		if more := w.nc.Stats().OutMsgs - sent; more != 0 {
			t.Errorf("the polls sent %d messages", more)
		}
		if ids, _ := w.poll(latest, begin); ids != "b c" {
			t.Errorf("the items are %q", ids)
		}
		for i := range 20 {
			id := fmt.Sprint(i)
			if answer := w.ask("POST", `{"id":"`+id+`"}`, of(`["`+id+`"]`)...); answer.Code != http.StatusCreated {
				t.Fatal(answer.Code, answer.Body)
			}
			if ids, end = w.poll(all, end); ids != id {
				t.Errorf("after the creation of %s come %q", id, ids)
			}
		}
		if names := w.consumers(); len(names) != 1 {
			t.Errorf("the readers are %q", names)
		}
	})
}

// TestDefinitionFollows: while a feed is read, another definition of the container, stored over
// NATS, counts as soon as the reader has it.
func TestDefinitionFollows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.poll(all, "*")
		time.Sleep(2 * time.Second)
		w.poll(all, "*") // reads the definition again, now with a reader
		if _, err := w.client.ChangeCollection(t.Context(), "orders", client.Metadata("cosmos", `{"partitionKey":{"paths":["/name"]}}`)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if answer := w.ask("POST", `{"id":"1","name":"n"}`, of(`["n"]`)...); answer.Code != http.StatusCreated {
			t.Error(answer.Code, answer.Body)
		}
	})
}

// TestFeedReaderEnds: the reader of the log ends with the gateway, and after a time without
// requests. Without it, and after it is lost, feeds have all events.
func TestFeedReaderEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, end := w.poll(all, "*")
		next := func(id string) {
			t.Helper()
			w.create(id)
			ids := ""
			if ids, end = w.poll(all, end); ids != id {
				t.Errorf("the feed has %q, want %s", ids, id)
			}
		}
		next("a")
		names := w.consumers()
		if len(names) != 1 {
			t.Fatalf("the readers are %q", names)
		}
		check(t, w.log.DeleteConsumer(t.Context(), names[0]))
		next("b")
		if names := w.consumers(); len(names) != 0 {
			t.Errorf("a reader that failed is begun again at once: %q", names)
		}
		time.Sleep(time.Minute)
		next("c")
		if names := w.consumers(); len(names) != 1 {
			t.Errorf("a minute after a failure the readers are %q", names)
		}
		time.Sleep(2 * time.Minute)
		if names := w.consumers(); len(names) != 0 {
			t.Errorf("an idle database has the readers %q", names)
		}
		next("d")
		if names := w.consumers(); len(names) != 1 {
			t.Errorf("the readers are %q", names)
		}
		w.gateway.Close()
		if names := w.consumers(); len(names) != 0 {
			t.Errorf("a gateway that ended has the readers %q", names)
		}
	})
}

// TestFeedAfterRetention: where retention took the beginning of the log, a feed of the latest
// version begins with the items from before, in the order of their versions; one of all
// versions that would go on there is a 410.
func TestFeedAfterRetention(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		want := []string{}
		for i := range 12 { // of versions with one digit and with two
			want = append(want, fmt.Sprintf("%c", 'z'-i))
		}
		w.create(want...)
		info, err := w.log.Info(t.Context())
		check(t, err)
		check(t, w.log.Purge(t.Context(), jetstream.WithPurgeSequence(info.State.LastSeq+1)))
		w.create("later")
		var got []string
		for after := ""; ; {
			ids, next := w.poll(latest, after, "x-ms-max-item-count", "5")
			if ids == "" {
				break
			}
			got, after = append(got, ids), next
		}
		if want := strings.Join(want[:5], " ") + "; " + strings.Join(want[5:10], " ") + "; " + strings.Join(want[10:], " ") + "; later"; strings.Join(got, "; ") != want {
			t.Errorf("the pages are %q, want %s", got, want)
		}
		answer := w.ask("GET", "", "A-IM", all, "If-None-Match", "5")
		if answer.Code != http.StatusGone || !strings.HasPrefix(answer.Body.String(), `{"code":"Gone","message":"`) || !strings.Contains(answer.Body.String(), "begin again from now") {
			t.Errorf("a continuation from before: %d %s", answer.Code, answer.Body)
		}
	})
}

// TestFeedOfAnotherLog: the feed of a database that was dropped and opened again has nothing of
// the earlier one, whoever did it.
func TestFeedOfAnotherLog(t *testing.T) {
	g := start(t, host.Cosmos{})
	feed := func() string {
		var text string
		for _, mode := range []string{latest, all} {
			text += g.want(200, "GET", "dbs/db/colls/c/docs", "", "A-IM", mode, "If-None-Match", "1").text
		}
		return text
	}
	for round, again := range []func(){
		func() {},
		func() { g.want(204, "DELETE", "dbs/db", ""); g.want(201, "POST", "dbs", `{"id":"db"}`) },
		func() {
			clock := g.client.TestClock()
			check(t, clock.Drop(t.Context()))
			check(t, clock.Open(t.Context(), time.Time{}))
		},
	} {
		again()
		g.container("c", "/id", "")
		for i := range 3 {
			id := fmt.Sprintf("round %d, %d", round, i)
			g.want(201, "POST", "dbs/db/colls/c/docs", `{"id":"`+id+`"}`, of(`["`+id+`"]`)...)
			if text := feed(); !strings.Contains(text, id) || round > 0 && strings.Contains(text, fmt.Sprintf("round %d", round-1)) {
				t.Errorf("round %d: the feeds have %s", round, text)
			}
		}
	}
}
