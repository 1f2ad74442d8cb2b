package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/versus"
)

// day is how long documents live where none is to expire.
const day = 24 * time.Hour

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// fill upserts the first so many documents, in batches of the largest size, over
// several connections, and checks that every one was stored.
func fill(b *testing.B, l *lapse, collection string, documents int) {
	b.Helper()
	var (
		conns   = versus.Connections(b, l.URL(), connections)
		callers sync.WaitGroup
		next    atomic.Int64
		failed  atomic.Pointer[error]
	)
	for caller := range 2 * connections {
		callers.Go(func() {
			for failed.Load() == nil {
				from := int(next.Add(client.MaxBatch)) - client.MaxBatch
				to := min(from+client.MaxBatch, documents)
				if from >= to {
					return
				}
				var body batchBody
				for n := from; n < to; n++ {
					body.document(n)
				}
				if err := askBatch(conns[caller%connections], collection, body.end(), to-from); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	callers.Wait()
	for _, nc := range conns {
		nc.Close()
	}
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	l.holds(b, documents)
}

// holds fails the benchmark unless so many documents live.
func (l *lapse) holds(b *testing.B, documents int) {
	b.Helper()
	status, err := l.client.Status(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	if status.Documents != int64(documents) {
		b.Fatalf("%d documents live, want %d", status.Documents, documents)
	}
}

// millions is a number as a table has it.
func millions(n int) string {
	switch {
	case n%1_000_000 == 0:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n%1_000 == 0:
		return fmt.Sprintf("%d k", n/1_000)
	}
	return fmt.Sprint(n)
}
