package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// writers write into the collection load until stop, across restarts, each its own
// documents, and record which writes were acknowledged.
type writers struct {
	t      testing.TB
	s      *harness.Server
	ending chan struct{}
	wg     sync.WaitGroup

	mu           sync.Mutex
	acknowledged map[string][]int  // by document, each acknowledged n
	attempted    map[string]int    // the last n that was sent
	causes       map[uint64]string // document and n of each mutation published
	refusals     map[int]int       // by code
	done         int               // writes acknowledged

	due atomic.Int64 // second of the next storm
}

const writerTTL = 2 // seconds, so that much expires between the crashes

func startWriters(t testing.TB, s *harness.Server, n int) *writers {
	t.Helper()
	w := &writers{t: t, s: s, ending: make(chan struct{}), acknowledged: make(map[string][]int),
		attempted: make(map[string]int), causes: make(map[uint64]string), refusals: make(map[int]int)}
	for i := range n {
		nc := dial(t, s) // before it is killed
		w.wg.Go(func() { w.write(nc, i) })
	}
	nc := dial(t, s)
	w.wg.Go(func() { w.publish(nc) })
	return w
}

func (w *writers) going() bool {
	select {
	case <-w.ending:
		return false
	default:
		return true
	}
}

func (w *writers) write(nc *nats.Conn, writer int) {
	for n := 1; w.going(); n++ {
		id := fmt.Sprintf("w%d-%d", writer, n%20)
		w.mu.Lock()
		w.attempted[id] = n
		w.mu.Unlock()
		// A server that is killed never replies.
		a, err := tryAskFor(nc, "document.upsert.load."+id, fmt.Sprintf(`{"n":%d}`, n), time.Second)
		w.mu.Lock()
		switch {
		case err != nil:
			// The write may or may not have been applied.
			w.refusals[0]++
		case a.code == 200 || a.code == 201:
			w.acknowledged[id] = append(w.acknowledged[id], n)
			w.done++
		default:
			w.refusals[a.code]++
		}
		w.mu.Unlock()
		if err != nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func (w *writers) publish(nc *nats.Conn) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
	if err != nil {
		w.t.Error(err)
		return
	}
	for n := 1; w.going(); n++ {
		id := fmt.Sprintf("m-%d", n%20)
		ack, err := js.Publish(w.t.Context(), "lapse.main.mutations.document.upsert.load."+id, fmt.Appendf(nil, `{"n":%d}`, n))
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		w.mu.Lock()
		w.causes[ack.Sequence] = fmt.Sprintf("%s %d", id, n)
		w.mu.Unlock()
	}
}

// storm makes thousands of documents due in one second, again and again.
func (w *writers) storm(nc *nats.Conn) {
	var operations []string
	for i := range 1000 {
		operations = append(operations, fmt.Sprintf(`{"op":"upsert","id":"BATCH-%d","body":{}}`, i))
	}
	body := `{"operations":[` + strings.Join(operations, ",") + `]}`
	for w.going() {
		w.due.Store(time.Now().Unix() + writerTTL)
		for batch := range 3 {
			_, _ = tryAskFor(nc, "batch.storm", strings.ReplaceAll(body, "BATCH", fmt.Sprint(batch)), time.Second)
		}
		select {
		case <-w.ending:
		case <-time.After((writerTTL + 1) * time.Second):
		}
	}
}

func (w *writers) stop() {
	close(w.ending)
	w.wg.Wait()
}

// count returns the number of writes acknowledged so far.
func (w *writers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// verify waits until every document has expired, and checks that the log has all
// acknowledged writes.
func (w *writers) verify() {
	t := w.t
	t.Helper()
	nc := dial(t, w.s)
	eventually(t, "every mutation judged and every document expired", func() bool {
		s := askStatus(t, nc)
		return s.MutationsBehind == 0 && s.Documents == 0 && s.Overdue == 0
	})
	end := mustAsk(t, nc, 201, "collection.create.end", "").seq
	events := readFeed(t, nc, "*", func(events []event) bool {
		return len(events) > 0 && events[len(events)-1].Seq >= end
	})
	checkLog(t, events)
	written := make(map[string]map[int]bool)
	latest := make(map[string]int)
	var cause uint64
	for _, e := range events {
		var document struct{ N int }
		if e.Collection != "load" || e.Type != "DocumentCreated" && e.Type != "DocumentReplaced" {
			continue
		}
		check(t, json.Unmarshal(e.Body, &document))
		if written[e.ID] == nil {
			written[e.ID] = make(map[int]bool)
		}
		if written[e.ID][document.N] {
			t.Errorf("event %d: write %d of %s is in the log twice", e.Seq, document.N, e.ID)
		}
		written[e.ID][document.N] = true
		if strings.HasPrefix(e.ID, "w") && document.N < latest[e.ID] {
			t.Errorf("event %d: write %d of %s comes after write %d", e.Seq, document.N, e.ID, latest[e.ID])
		}
		latest[e.ID] = document.N
		if e.Cause != "" {
			var n uint64
			if _, err := fmt.Sscanf(e.Cause, "mutations/%d", &n); err != nil || n != cause+1 {
				t.Fatalf("event %d has the cause %s after %d", e.Seq, e.Cause, cause)
			}
			cause = n
			if want, ok := w.causes[n]; ok && want != fmt.Sprintf("%s %d", e.ID, document.N) {
				t.Errorf("event %d: mutation %d was %s, and came out as %s %d", e.Seq, n, want, e.ID, document.N)
			}
		}
	}
	for n := range w.causes {
		if n > cause {
			t.Errorf("mutation %d was accepted and never judged", n)
		}
	}
	for id, all := range w.acknowledged {
		for _, n := range all {
			if !written[id][n] {
				t.Errorf("write %d of %s was acknowledged and is lost", n, id)
			}
		}
	}
	for id, n := range latest {
		if strings.HasPrefix(id, "w") && n > w.attempted[id] {
			t.Errorf("write %d of %s was never made", n, id)
		}
	}
	counts := countTypes(events)
	if counts["DocumentCreated"] != counts["DocumentExpired"] {
		t.Errorf("%v: not everything that began has ended once", counts)
	}
	replays(t, w.s, nc)
	w.s.Run("audit").OK()
	if warns := bytes.Contains(mustAsk(t, nc, 200, "collection.get.load", "").body, []byte("warnBefore")); warns && counts["DocumentExpiring"] == 0 {
		t.Errorf("%v: nothing was warned of", counts)
	}
	t.Logf("%d acknowledged, %d mutations, refused %v, %v", w.count(), len(w.causes), w.refusals, counts)
}

// replays fails the test unless the exported log, folded from its beginning, gives the
// server's state.
func replays(t testing.TB, s *harness.Server, nc *nats.Conn) {
	t.Helper()
	log := s.Run("export").OK()
	if got, want := harness.Run(t, strings.NewReader(log), "replay", "-").OK(), askStatus(t, nc).Digest; got != want+"\n" {
		t.Errorf("the digest is %s, and %s by the log", want, got)
	}
}

// TestKill: a server that is killed again and again under load, often while thousands of
// documents expire, every third time during a start, too, loses no acknowledged write, and
// each version expires once.
func TestKill(t *testing.T) {
	t.Parallel()
	for i, durability := range []string{"fsync", "os"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			r := stress.Rand(t)
			s := harness.Serve(t, "--durability", durability)
			// Warnings come one second before the deadline, or with each write.
			mustAsk(t, dial(t, s), 201, "collection.create.load", fmt.Sprintf(`{"defaultTtl":%d,"warnBefore":%d}`, writerTTL, 1+i))
			mustAsk(t, dial(t, s), 201, "collection.create.storm", fmt.Sprintf(`{"defaultTtl":%d}`, writerTTL))
			w := startWriters(t, s, 8)
			storm := dial(t, s)
			w.wg.Go(func() { w.storm(storm) })
			var up time.Duration
			for range stress.Pick(3, 20) {
				began, before := time.Now(), w.count()
				enough := before + 100 + r.IntN(400)
				eventually(t, "some writes", func() bool { return w.count() > enough })
				if r.IntN(2) == 0 {
					time.Sleep(time.Until(time.Unix(w.due.Load(), 0)))
				}
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
				up += time.Since(began)
				s.Kill()
				if r.IntN(2) == 0 {
					loseMemory(t, s)
				}
				for r.IntN(3) == 0 {
					if code := s.StartAndSignal(time.Duration(r.IntN(300))*time.Millisecond, syscall.SIGKILL); code != -1 {
						t.Fatalf("it exited with %d:\n%s", code, s.Stderr())
					}
				}
				s.Restart()
			}
			w.stop()
			t.Logf("%.0f acknowledged writes a second while it was up", float64(w.count()+len(w.causes))/up.Seconds())
			w.verify()
			s.Stop()
		})
	}
}

// loseMemory removes the in-memory staging of a server that is down, as a power cut does.
func loseMemory(t testing.TB, s *harness.Server) {
	t.Helper()
	links, err := filepath.Glob(filepath.Join(s.Dir, "jetstream/*/streams/LAPSE_main/batches/*"))
	check(t, err)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil {
			check(t, os.RemoveAll(to))
		}
	}
}

// TestHangup: SIGHUP ends serve as SIGTERM does, where there is nothing to read again.
func TestHangup(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	mustAsk(t, dial(t, s), 201, "collection.create.c", "")
	s.Hangup()
	s.Restart()
	mustAsk(t, dial(t, s), 200, "collection.get.c", "")
}

// TestStopAnswersPendingRequests: on SIGTERM the server answers every request that it
// has, truthfully, and ends soon.
func TestStopAnswersPendingRequests(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.load", "")
	const requests = 2000
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox + ".*")
	check(t, err)
	for i := range requests {
		tail, body := fmt.Sprintf("document.create.load.%d", i), "{}"
		if i%10 == 0 {
			tail, body = "batch.load", fmt.Sprintf(`{"operations":[{"op":"create","id":"%d","body":{}}]}`, i)
		}
		check(t, nc.PublishRequest("lapse.main.api."+tail, fmt.Sprintf("%s.%d", inbox, i), []byte(body)))
	}
	check(t, nc.Flush())
	if took := s.Stop(); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
	codes := make(map[string]string)
	counts := make(map[string]int)
	for len(codes) < requests {
		m, err := answers.NextMsg(patience)
		if err != nil {
			t.Fatalf("%d of %d requests were answered, with %v", len(codes), requests, counts)
		}
		code := m.Header.Get("Lapse-Status")
		if code == "200" {
			code = "201" // a batch with one operation, which was done
			if !strings.Contains(string(m.Data), `"code":201`) {
				t.Errorf("a batch was answered with %s", m.Data)
			}
		}
		codes[strings.TrimPrefix(m.Subject, inbox+".")] = code
		counts[code]++
	}
	t.Logf("answered with %v", counts)
	s.Restart()
	eventually(t, "the service is back", func() bool { _, err := tryAskFor(nc, "status", "", time.Second); return err == nil })
	for i := range requests {
		code := codes[fmt.Sprint(i)]
		there := ask(t, nc, fmt.Sprintf("document.get.load.%d", i), "").code == 200
		if code != "201" && code != "503" || (code == "201") != there {
			t.Errorf("request %d was answered with %s; is it there: %v", i, code, there)
		}
	}
}
