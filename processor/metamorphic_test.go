package processor

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/test/stress"
)

// variant is one way to fold a log.
type variant struct {
	Fold       int  // maximum number of events per fold
	Even       bool // every fold has that many
	Known      bool // with the writer's facts, else as read back
	NoIndexes  bool
	Beside     bool // index and read concurrently
	MemTable   uint64
	Cache      int64
	Documents  int64 // bytes of the document cache
	Processors int

	// Folds in 1000 that are followed by a crash or a clean restart, and the percentage
	// of unsynced data that survives a crash.
	Crash, Restart int
	Unsynced       int
}

func drawVariant(r *rand.Rand) variant {
	pick := func(from ...int) int { return from[r.IntN(len(from))] }
	return variant{
		Fold: pick(1, 2, 7, 60, 256, 999, 1000, 1+r.IntN(1000)), Even: pick(0, 1) == 0,
		Known: pick(0, 1) == 0, NoIndexes: pick(0, 0, 1) == 1, Beside: pick(0, 1) == 0,
		MemTable: uint64(pick(64<<10, 256<<10, 1<<20, 16<<20)), Cache: int64(pick(1<<16, 1<<20, 16<<20)), Documents: int64(pick(1, 4<<10, 1<<20, 24<<20)),
		Processors: pick(1, 2, 3, 8),
		Crash:      pick(0, 0, 20, 200), Restart: pick(0, 0, 20), Unsynced: pick(0, 50, 100),
	}
}

// replayStore is a projection that a test crashes, closes and reopens.
type replayStore struct {
	*projections.Store
	t       testing.TB
	fs      *vfs.MemFS
	options projections.Options

	stop   chan struct{} // ends concurrent goroutines; nil if there are none
	beside sync.WaitGroup
}

func newReplayStore(t testing.TB, o projections.Options) *replayStore {
	t.Helper()
	s := &replayStore{t: t, fs: vfs.NewCrashableMem(), options: o}
	s.open()
	return s
}

func (s *replayStore) open() {
	s.t.Helper()
	s.options.FS = s.fs
	var err error
	if s.Store, err = projections.Open("projection", s.options); err != nil {
		s.t.Fatal(err)
	}
}

func (s *replayStore) close() {
	s.t.Helper()
	if s.stop != nil {
		close(s.stop)
		s.beside.Wait()
		s.stop = nil
	}
	if err := s.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *replayStore) fold(facts []projections.Fact) {
	s.t.Helper()
	if err := s.Fold(facts); err != nil {
		s.t.Fatal(err)
	}
}

func (s *replayStore) crash(unsynced int, r *rand.Rand) {
	s.t.Helper()
	left := s.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(r.Uint64(), 0))})
	s.close()
	s.fs = left
	s.open()
}

// runBeside indexes and reads concurrently until close.
func (s *replayStore) runBeside() {
	stop, store := make(chan struct{}), s.Store
	s.stop = stop
	s.beside.Go(func() {
		for {
			select {
			case <-store.IndexWork():
				if _, err := store.Index(32); err != nil {
					s.t.Error(err)
					return
				}
			case <-stop:
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	s.beside.Go(func() { <-stop; cancel() })
	s.beside.Go(func() {
		for store.Wait(ctx, store.Cursor().Seq+1) == nil {
			for _, c := range store.Collections() {
				if _, err := store.Count(c, 0); err != nil {
					s.t.Error(err)
				}
			}
		}
	})
}

func (s *replayStore) indexAll() {
	s.t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.Index(1000); err != nil {
			s.t.Fatal(err)
		}
	}
}

// state is the state of a projection after folding a log.
type state struct {
	digest         projections.Digest
	state, indexes string // hashes of the dumps
}

func (f *frozen) stateOf(t testing.TB, s *projections.Store, indexes bool) (of state) {
	t.Helper()
	of.digest = s.Digest()
	if counted, err := s.Verify(context.Background()); err != nil || counted != of.digest {
		t.Fatalf("the digest is %v, and by counting %v (%v)", of.digest, counted, err)
	}
	h := sha256.New()
	f.dump(t, h, s)
	of.state = fmt.Sprintf("%x", h.Sum(nil))
	if indexes {
		h.Reset()
		dumpIndexes(t, h, s)
		of.indexes = fmt.Sprintf("%x", h.Sum(nil))
	}
	return of
}

// foldAs folds the whole log according to a variant.
func (f *frozen) foldAs(t testing.TB, v variant, r *rand.Rand) (of state, ends int) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(v.Processors))
	facts := f.known
	if !v.Known {
		facts = f.bare()
	}
	s := newReplayStore(t, projections.Options{MemTableBytes: v.MemTable, CacheBytes: v.Cache, DocumentBytes: v.Documents, NoIndexes: v.NoIndexes})
	if v.Beside {
		s.runBeside()
	}
	// A crash may undo everything, so crashes are bounded.
	for ends = 0; s.Cursor().Seq < uint64(len(facts)); {
		rest := facts[s.Cursor().Seq:]
		n := min(v.Fold, len(rest))
		if !v.Even {
			n = 1 + r.IntN(n)
		}
		s.fold(rest[:n])
		if !v.Beside && !v.NoIndexes && r.IntN(10) == 0 {
			if _, err := s.Index(16); err != nil {
				t.Fatal(err)
			}
		}
		if ends >= 12 {
			continue
		}
		switch at := r.IntN(1000); {
		case at < v.Crash:
			s.crash(v.Unsynced, r)
		case at < v.Crash+v.Restart:
			s.close()
			s.open()
		default:
			continue
		}
		ends++
		if v.Beside {
			s.runBeside()
		}
	}
	if !v.NoIndexes {
		s.indexAll()
	}
	of = f.stateOf(t, s.Store, !v.NoIndexes)
	s.close()
	return of, ends
}

// TestMetamorphicReplay: folding the frozen log gives one digest and one state, whatever
// the size of folds, memtables and caches, the crashes and the number of processors, with
// or without indexes and the writer's facts.
func TestMetamorphicReplay(t *testing.T) {
	f, err := frozenLog()
	if err != nil {
		t.Fatal(err)
	}
	r := stress.Rand(t)
	want, _ := f.foldAs(t, variant{Fold: 1000, Even: true, MemTable: 16 << 20, Cache: 16 << 20, Documents: 1 << 20, Processors: runtime.GOMAXPROCS(0)}, r)
	ends := 0
	for range stress.Pick(5, 50) {
		v := drawVariant(r)
		got, n := f.foldAs(t, v, r)
		ends += n
		if v.NoIndexes {
			got.indexes = want.indexes
		}
		if got != want {
			t.Fatalf("%+v, with %d restarts, gives\n  %+v, want\n  %+v", v, n, got, want)
		}
	}
	t.Logf("%v, with %d crashes and restarts", want.digest, ends)
}

// TestMetamorphicReplayFromJetStream: folding the frozen log from an embedded server
// gives the same state, with restarts of the server and the projection on the way.
func TestMetamorphicReplayFromJetStream(t *testing.T) {
	f, err := frozenLog()
	if err != nil {
		t.Fatal(err)
	}
	r := stress.Rand(t)
	want, _ := f.foldAs(t, variant{Fold: 1000, Even: true, MemTable: 16 << 20, Cache: 16 << 20, Documents: 1 << 20, Processors: runtime.GOMAXPROCS(0)}, r)
	w := &wire{t: t, dir: t.TempDir(), options: Options{Durability: OS}.EnsureDefaults()}
	open := func() (log *eventlog.Log, end func()) {
		w.startServer()
		log, err := eventlog.Open(w.ctx(), w.connections(), eventlog.Config{Database: "main"})
		w.check(err)
		return log, func() {
			log.Close()
			w.client.Close()
			w.service.Close()
			w.log.Close()
			w.shutdown()
		}
	}
	log, end := open()
	w.check(log.Listen())
	for rest := f.known; len(rest) > 0; {
		n := min(1+r.IntN(500), len(rest))
		w.check(log.Append(rest[:n], eventlog.As(r.IntN(3))))
		if a := <-log.Acks; a.Err != nil || a.Seq != rest[n-1].Seq {
			t.Fatalf("appended up to %d: %+v", rest[n-1].Seq, a)
		}
		rest = rest[n:]
	}
	options := projections.Options{CacheBytes: 1 << 20, MemTableBytes: 64 << 10}
	dir := filepath.Join(w.dir, "projection")
	for through := uint64(0); through < uint64(len(f.known)); {
		end()
		log, end = open()
		w.check(log.Check(w.ctx()))
		s, err := projections.Open(dir, options)
		w.check(err)
		through = min(through+1+r.Uint64N(8000), uint64(len(f.known)))
		w.check(log.CatchUp(w.ctx(), s, through, nil))
		for more := true; more; {
			more, err = s.Index(256)
			w.check(err)
		}
		if through == uint64(len(f.known)) {
			if got := f.stateOf(t, s, true); got != want {
				t.Errorf("from JetStream it is\n  %+v, want\n  %+v", got, want)
			}
		}
		w.check(s.Close())
	}
	end()
}
