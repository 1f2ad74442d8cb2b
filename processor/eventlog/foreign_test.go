package eventlog_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
)

// TestForeignMessages: foreign messages in the log are skipped, counted and reported, and
// fail no write.
func TestForeignMessages(t *testing.T) {
	for _, durability := range []processor.Durability{processor.OS, processor.Fsync} {
		t.Run(string(durability), func(t *testing.T) {
			w := processortest.New(t, func(o *processor.Options) { o.Durability = durability })
			w.Want(201, "collection.create.load", `{"defaultTtl":3600}`)
			var load sync.WaitGroup
			var ending atomic.Bool
			for i := range 8 {
				load.Go(func() {
					for !ending.Load() {
						w.Ask(fmt.Sprintf("document.upsert.load.%d", i), `{}`)
					}
				})
			}
			foreign := []struct {
				tail, body string
				headers    []string
			}{
				{"load.Nonsense", "", nil},
				{"load.DocumentCreated", "no event", nil},
				{"load", "", nil},
				{"a.b.c.d", "{}", nil},
				{"load.DocumentCreated", `{"id":"x"}`, []string{"Lapse-Time", "1", "Lapse-Id", "%zz"}},
				{"load.DocumentReplaced", `{"id":"1","n":"foreign"}`, []string{"Lapse-Time", "1", "Lapse-Id", "1", "Lapse-Previous", "18446744073709551615"}},
				{"_.WriterStarted", "poison", nil},
				{"load.Status", "", []string{"Status", "404", "Description", "Consumer Deleted"}}, // as JetStream's to a consumer
				{"load.Status", "", []string{"Status", "409", "Description", "Consumer Deleted"}},
				{"load.DocumentExpired", `{}`, []string{"Lapse-Time", "1", "Lapse-Id", "1", "Lapse-Previous", "2", "Lapse-Deadline", "x", "Lapse-Ttl", "y", "Lapse-Rule", "z"}},
			}
			for _, f := range foreign {
				w.Intrude(f.tail, f.body, f.headers...)
				time.Sleep(20 * time.Millisecond) // of load
			}
			ending.Store(true)
			load.Wait()
			w.Want(201, "document.create.load.last", "{}") // behind the last foreign message
			if n := w.Inside().Store.Cursor().Foreign; n != uint64(len(foreign)) {
				t.Errorf("%d foreign messages were counted, want %d\n%s", n, len(foreign), w.Logs)
			}
			if n := strings.Count(w.Logs.String(), "foreign message in the log skipped"); n < len(foreign)-1 {
				t.Errorf("%d foreign messages were reported, want %d", n, len(foreign))
			}
			w.Restart()
			w.Refold()
			if n := w.Inside().Store.Cursor().Foreign; n != uint64(len(foreign)) {
				t.Errorf("%d foreign messages were counted in catching up, want %d", n, len(foreign))
			}
			w.Want(200, "document.upsert.load.last", "{}")
		})
	}
}
