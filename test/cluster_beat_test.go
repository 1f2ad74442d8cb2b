package test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/cluster"
)

// beats are three clients, each on one NATS node and no other, that repeat one request,
// and the moments at which one of them succeeded.
type beats struct {
	what string
	made string // Lapse-Min-Seq: that of the document, which a standby may not have yet
	wg   sync.WaitGroup
	stop chan struct{}

	pause sync.RWMutex // a holder of the write lock pauses them

	mu   sync.Mutex
	done []beat
}

type beat struct {
	sent, answered time.Time
	node, n        int
	version        uint64 // of the document
}

// startBeats repeats request, which must succeed with 200 or 201, until the test ends.
func startBeats(t *testing.T, what string, access *cluster.Access, made uint64, request func(node, n int) (tail, body string)) *beats {
	t.Helper()
	b := &beats{what: what, made: strconv.FormatUint(made, 10), stop: make(chan struct{})}
	for node := range cluster.Nodes {
		nc := dialURL(t, access.NodeURL(node))
		b.wg.Go(func() { b.run(t, nc, node, request) })
	}
	t.Cleanup(func() {
		close(b.stop)
		b.wg.Wait()
	})
	return b
}

// dialURL connects with short timeouts, so that the client soon notices a dead node.
func dialURL(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.DontRandomize(), nats.PingInterval(time.Second), nats.RetryOnFailedConnect(true), nats.Timeout(hasty), nats.FlusherTimeout(hasty))
	check(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func (b *beats) run(t *testing.T, nc *nats.Conn, node int, request func(node, n int) (tail, body string)) {
	for n := 1; ; n++ {
		select {
		case <-b.stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		tail, body := request(node, n)
		written, err := b.ask(nc, tail, body)
		if err != nil {
			t.Error(err)
			return
		}
		if written.version != 0 {
			written.node, written.n = node, n
			b.mu.Lock()
			b.done = append(b.done, written)
			b.mu.Unlock()
		}
	}
}

// ask sends one request. The beat has no version if it was not answered, or with 429, 503
// or 504.
func (b *beats) ask(nc *nats.Conn, tail, body string) (written beat, err error) {
	b.pause.RLock()
	defer b.pause.RUnlock()
	written.sent = time.Now()
	a, err := tryAskWith(nc, tail, body, hasty, "Lapse-Min-Seq", b.made)
	written.answered = time.Now()
	switch {
	case err != nil || a.code == 503 || a.code == 504 || a.code == 429:
		return written, nil
	case a.code != 200 && a.code != 201:
		return written, fmt.Errorf("%s: %d %s", tail, a.code, a.body)
	}
	var document struct {
		Etag string `json:"_etag"`
	}
	if err = json.Unmarshal(a.body, &document); err == nil {
		written.version, err = strconv.ParseUint(document.Etag, 10, 64)
	}
	return written, err
}

// verify checks that the log has the acknowledged writes.
func (b *beats) verify(t *testing.T, log map[uint64]event) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, written := range b.done {
		if e := log[written.version]; e.Collection != "beat" || e.ID != fmt.Sprint("write", written.node) || numberIn(e.Body) != written.n {
			t.Errorf("write %d of node %d was acknowledged as version %d, which is %s %s/%s %s: it is lost", written.n, written.node, written.version, e.Type, e.Collection, e.ID, e.Body)
		}
	}
}

// after waits for a beat that began after a moment, and returns the time from that moment
// to its reply.
func (b *beats) after(t *testing.T, moment time.Time) time.Duration {
	t.Helper()
	var took time.Duration
	eventually(t, fmt.Sprintf("%s that come through after %s", b.what, moment.Format("05.000")), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i := len(b.done) - 1; i >= 0 && b.done[i].answered.After(moment); i-- {
			if b.done[i].sent.After(moment) {
				took = b.done[i].answered.Sub(moment)
			}
		}
		return took != 0
	})
	return took
}

// longest returns the longest gap between beats from a moment to now, and its start.
func (b *beats) longest(from time.Time) (longest time.Duration, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, written := range append(b.done[:len(b.done):len(b.done)], beat{answered: time.Now()}) {
		if !written.answered.After(from) {
			continue
		}
		if took := written.answered.Sub(from); took > longest {
			longest, since = took, from
		}
		from = written.answered
	}
	return longest, since
}
