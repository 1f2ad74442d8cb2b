package projections

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lapsedb/lapse/test/stress"
)

// TestDiskFull fills the disk at operation i of a history of folds, index work and
// restarts, for all i, or for some. Nothing hangs, and the failed call reports the full
// disk. What is left is the state of the log up to the cursor, and folding continues
// from there.
func TestDiskFull(t *testing.T) {
	rng := stress.Rand(t)
	log := crashLog(rng, stress.Pick(400, 1500))
	sound := newFullDisk(vfs.NewCrashableMem(), 1<<60)
	must(t, foldAll(sound, log, rng.Uint64()))
	operations := sound.operations.Load()
	var at []int64
	for i := int64(1); i <= operations; i++ {
		at = append(at, i)
	}
	if !stress.Long() {
		rng.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
		at = at[:min(6, len(at))]
	}
	lost := 0
	for _, i := range at {
		memory := vfs.NewCrashableMem()
		full := newFullDisk(memory, i)
		ended := make(chan error, 1)
		seed := rng.Uint64()
		go func() { ended <- foldAll(full, log, seed) }()
		var err error
		select {
		case err = <-ended:
		case <-time.After(10 * time.Second):
			t.Fatalf("operation %d (%s): it hangs", i, full.what())
		}
		if full.operations.Load() >= i && !errors.Is(err, syscall.ENOSPC) ||
			err != nil && (!strings.HasSuffix(err.Error(), "free some space and start again") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("operation %d (%s): it says %q", i, full.what(), err)
		}
		unsynced := []int{100, 100, 50, 0}[rng.IntN(4)] // below 100: a power cut, too
		left := memory.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(rng.Uint64(), 0))})
		if !goesOn(t, fmt.Sprintf("operation %d (%s)", i, full.what()), left, log) {
			if lost++; unsynced == 100 {
				t.Fatalf("operation %d (%s): it does not open again", i, full.what())
			}
		}
	}
	t.Logf("full at %d of %d operations, %d times with a power cut that lost the projection", len(at), operations, lost)
}

func smallOptions(fs vfs.FS) Options {
	return Options{FS: fs, CacheBytes: 1 << 20, MemTableBytes: 64 << 10}
}

// foldAll folds the log in steps, with index work and restarts in between, and returns
// the error that ended it.
func foldAll(fs vfs.FS, l *logbook, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	s, err := Open("projection", smallOptions(fs))
	if err != nil {
		return err
	}
	for s.Cursor().Seq < uint64(len(l.facts)) {
		rest := l.since(s.Cursor().Seq)
		err := s.Fold(rest[:min(len(rest), 1+rng.IntN(100))])
		if err == nil && rng.IntN(4) == 0 {
			_, err = s.Index(50)
		}
		if err != nil {
			if closeErr := s.Close(); closeErr == nil || closeErr.Error() != err.Error() {
				err = errors.Join(err, closeErr)
			}
			return err
		}
		if rng.IntN(8) == 0 {
			if err := s.Close(); err != nil {
				return err
			}
			if s, err = Open("projection", smallOptions(fs)); err != nil {
				return err
			}
		}
	}
	return s.Close()
}

// goesOn compares the remaining projection with the log, and folds the rest. opens is false if
// it must be folded again from the start.
func goesOn(t *testing.T, what string, fs vfs.FS, l *logbook) (opens bool) {
	t.Helper()
	s, err := Open("projection", smallOptions(fs))
	if err != nil {
		return false
	}
	defer s.Close()
	prefix, err := Open("projection", smallOptions(vfs.NewMem()))
	must(t, err)
	defer prefix.Close()
	same := func(without string) {
		t.Helper()
		if got, want := contents(t, s, without), contents(t, prefix, without); !maps.Equal(got, want) || s.Cursor() != prefix.Cursor() {
			t.Fatalf("%s: at %d it is %d keys, folded from the log they are %d, or others", what, s.Cursor().Seq, len(got), len(want))
		}
	}
	must(t, prefix.Fold(l.facts[:s.Cursor().Seq]))
	same("IJPVLR") // index work proceeds at its own pace
	for _, store := range []*Store{s, prefix} {
		catchUp(t, store, l)
		drain(t, store, 1000)
	}
	same("IJ")
	return true
}

// fullDisk is a file system on a disk that is full from one operation on.
type fullDisk struct {
	vfs.FS
	operations atomic.Int64
	first      atomic.Pointer[errorfs.Op] // the first refused operation
}

func newFullDisk(fs vfs.FS, from int64) *fullDisk {
	f := &fullDisk{}
	f.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpMkdirAll, errorfs.OpRename, errorfs.OpLink,
			errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFilePreallocate:
			if f.operations.Add(1) >= from {
				f.first.CompareAndSwap(nil, &op)
				return &syscallError{fmt.Sprint(op.Kind)}
			}
		}
		return nil
	}))
	return f
}

func (f *fullDisk) what() string { return fmt.Sprintf("%+v", f.first.Load()) }

// syscallError is the error of the machine's file system.
type syscallError struct{ what string }

func (e *syscallError) Error() string { return e.what + ": " + syscall.ENOSPC.Error() }
func (e *syscallError) Unwrap() error { return syscall.ENOSPC }
