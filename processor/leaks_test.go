package processor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// use is the resource use of the process.
type use struct {
	heap       int64 // live
	goroutines int
	files      int // open
}

func used() (u use) {
	settle()
	u.heap, u.goroutines = heap(), runtime.NumGoroutine()
	open, err := os.ReadDir("/proc/self/fd")
	if err == nil { // Linux only
		u.files = len(open)
	}
	return u
}

// flat checks that resource use has not grown, within a tolerance; bytes is that of the
// heap.
func flat(t *testing.T, before, after use, bytes int64) {
	t.Helper()
	t.Logf("before %+v, after %+v", before, after)
	if after.heap > before.heap+bytes || after.goroutines > before.goroutines+4 || after.files > before.files+8 {
		t.Errorf("it grew from %+v to %+v", before, after)
	}
}

// directory returns the total size of the files below dir. Files may vanish meanwhile.
func directory(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// cycles is a machine whose documents come and expire, without NATS.
type cycles struct {
	*waiting
	t   *testing.T
	now int64 // s
}

func startCycles(t *testing.T) *cycles {
	t.Helper()
	c := &cycles{waiting: &waiting{tb: t, dir: t.TempDir()}, t: t, now: 1_000_000}
	c.open()
	return c
}

func (c *cycles) open() {
	var err error
	if c.store, err = projections.Open(c.dir, projections.Options{CacheBytes: 1 << 20, MemTableBytes: 1 << 20, DocumentBytes: 1 << 20}); err != nil {
		c.t.Fatal(err)
	}
	if c.machine, err = machine.NewMachine(c.store); err != nil {
		c.t.Fatal(err)
	}
}

// mutate decides a mutation, which must succeed.
func (c *cycles) mutate(tail, body, msgID string) {
	c.t.Helper()
	mutation := schema.NewMutation(tail, []byte(body))
	mutation.MsgID = msgID
	for {
		o, err := c.machine.Decide(c.now*1000, mutation)
		if err != nil || o.Fault != nil {
			c.t.Fatal(tail, o.Fault, err)
		}
		if !o.Again {
			return
		}
		c.fold()
	}
}

// pass advances the time and expires due documents.
func (c *cycles) pass(seconds int64) {
	c.t.Helper()
	c.fold()
	c.now += seconds
	for more := true; more; {
		var err error
		if more, err = c.machine.Expire(c.now*1000, 1024); err != nil {
			c.t.Fatal(err)
		}
		c.fold()
	}
}

// quiet waits until every message id is forgotten, with no other work.
func (c *cycles) quiet() {
	c.pass(projections.RepeatWindow/1000 + 60)
	for i := range 1000 { // each event forgets a few ids
		c.mutate(fmt.Sprintf("document.create.orders.quiet-%d", i), `{"ttl":1}`, "")
	}
	c.pass(2)
}

// keys counts the keys of the projection by their first byte, and reopens projection and
// machine.
func (c *cycles) keys() map[string]int {
	c.t.Helper()
	if err := c.store.Close(); err != nil {
		c.t.Fatal(err)
	}
	db, err := pebble.Open(c.dir, &pebble.Options{ReadOnly: true, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	if err != nil {
		c.t.Fatal(err)
	}
	counts := make(map[string]int)
	it, err := db.NewIter(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		counts[string(it.Key()[:1])]++
	}
	if err := errors.Join(it.Close(), db.Close()); err != nil {
		c.t.Fatal(err)
	}
	c.open()
	return counts
}

// silent discards Pebble's log lines.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// historyBytes bounds the file bytes of the projection per ended incarnation: its H key,
// and a share of data not compacted yet.
const historyBytes = 96

// TestCyclesLeaveNothing: documents that expire leave only an entry in their id's
// history, whether ids are new or reused, with indexes or a Nats-Msg-Id. Collections that
// are created and deleted leave no more than that.
func TestCyclesLeaveNothing(t *testing.T) {
	stress.OneGoroutine(t)
	const round = 500
	total := stress.Pick(10_000, 1_000_000)
	work := map[string]func(c *cycles, n int){
		"documents": func(c *cycles, n int) {
			for i := range round {
				id, msgID := fmt.Sprintf("old-%d", i), ""
				if n%2 == 0 {
					id = fmt.Sprintf("new-%d-%d", n, i)
				}
				if i%10 == 0 {
					msgID = fmt.Sprintf("message-%d-%d", n, i)
				}
				ttl := `,"ttl":1`
				if i%2 == 0 {
					ttl = ""
				}
				c.mutate("document.create.orders."+id, fmt.Sprintf(`{"customer":"C%d","tags":["a","b"]%s}`, i, ttl), msgID)
			}
			c.pass(3)
		},
		"collections": func(c *cycles, n int) {
			for i := range round / 10 {
				name := fmt.Sprintf("old-%d", i)
				if n%2 == 0 {
					name = fmt.Sprintf("new-%d-%d", n, i)
				}
				c.mutate("collection.create."+name, `{"defaultTtl":2,"indexingPolicy":{"includedPaths":[{"path":"/customer"}]}}`, "")
				for d := range 9 {
					c.mutate(fmt.Sprintf("document.create.%s.%d", name, d), `{"customer":"C"}`, "")
				}
			}
			c.pass(3)
			for i := range round / 10 {
				name := fmt.Sprintf("old-%d", i)
				if n%2 == 0 {
					name = fmt.Sprintf("new-%d-%d", n, i)
				}
				c.mutate("collection.delete."+name, "", "")
			}
			c.fold()
		},
	}
	for name, do := range work {
		t.Run(name, func(t *testing.T) {
			c := startCycles(t)
			defer func() {
				if err := c.store.Close(); err != nil {
					t.Error(err)
				}
			}()
			c.mutate("collection.create.orders", `{"defaultTtl":2,"indexingPolicy":{"includedPaths":[{"path":"/customer"},{"path":"/tags"}]}}`, "")
			n := 0
			for ; n < total/round/5; n++ {
				do(c, n)
			}
			c.quiet()
			keysBefore := c.keys()
			before, filesBefore := used(), directory(t, c.dir)
			first := n
			for ; n < total/round; n++ {
				do(c, n)
			}
			c.quiet()
			keys := c.keys()
			flat(t, before, used(), 1<<20)
			lives := int64(n-first) * round
			files := directory(t, c.dir)
			t.Logf("%d lives: keys %v, before %v; files of %d KiB, before %d", lives, keys, keysBefore, files>>10, filesBefore>>10)
			if files > filesBefore+lives*historyBytes+4<<20 {
				t.Errorf("the projection grew from %d to %d bytes in %d lives", filesBefore, files, lives)
			}
			delete(keys, "H")
			delete(keysBefore, "H")
			if !maps.Equal(keys, keysBefore) {
				t.Errorf("the projection has keys %v, and had %v", keys, keysBefore)
			}
		})
	}
}

// TestCyclesOfRequests is TestCyclesLeaveNothing for a whole processor and its NATS
// server.
func TestCyclesOfRequests(t *testing.T) {
	total := stress.Pick(10_000, 1_000_000)
	dir := t.TempDir()
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.sessions", `{"defaultTtl":1,"indexingPolicy":{"includedPaths":[{"path":"/user"}]}}`)
		round := func(n int) {
			var b strings.Builder
			for i := range schema.MaxOperations {
				fmt.Fprintf(&b, `,{"op":"create","id":"%d","body":{"user":"U%d"}}`, i+n%2*n*schema.MaxOperations, i%100)
			}
			w.want(200, "batch.sessions", `{"operations":[`+b.String()[1:]+`]}`)
			w.want(200, "query.sessions", `{"where":"doc.user == 'U7'","count":true}`)
			w.want(200, "history.sessions.1", `{"limit":1}`)
			w.want(201, "collection.create.short", "")
			w.want(204, "collection.delete.short", "")
			w.want(404, "document.get.sessions.nobody", "", "Nats-Msg-Id", fmt.Sprint(n))
			time.Sleep(3 * time.Second)
			if status, err := w.processor.Status(w.ctx()); err != nil || status.Documents+status.Overdue != 0 {
				t.Fatalf("round %d: %+v, %v", n, status, err)
			}
		}
		n := 0
		for ; n < total/schema.MaxOperations/4; n++ {
			round(n)
		}
		before := used()
		for ; n < total/schema.MaxOperations; n++ {
			round(n)
		}
		flat(t, before, used(), 20<<20) // JetStream keeps the last block of each stream in memory
		w.idle()
	}, func(o *Options) {
		o.Dir, o.Projection.FS, o.Projection.DocumentBytes = filepath.Join(dir, "projection"), vfs.Default, 1<<20
	})
}
