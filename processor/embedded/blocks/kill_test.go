package blocks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/stress"
)

// whole fails the test unless a stream is found sound, and returns it.
func whole(t *testing.T, dir, events, what string) *Stream {
	t.Helper()
	found, err := Check(streamDir(dir), events, nil)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return found
}

// TestKillIsNotDamage: what a kill leaves of a trim, a purge or a write is not damage.
func TestKillIsNotDamage(t *testing.T) {
	t.Parallel()
	random := stress.Rand(t)
	s := newStore(t)
	s.fill(random, 80)
	last := len(s.sent)
	s.append("_.LogTrimmed", fmt.Appendf(nil, `{"first":%d}`, last-5))
	before := t.TempDir()
	s.copyTo(before)
	log, err := s.js.Stream(t.Context(), stream)
	s.check(err)
	s.check(log.Purge(t.Context(), jetstream.WithPurgeSequence(uint64(last-5))))
	whole(t, s.dir, events, "after a trim")
	kept := make(map[string]bool)
	for _, name := range blockFiles(t, s.dir) {
		kept[filepath.Base(name)] = true
	}
	for _, name := range blockFilesInOrder(t, before) { // the server's order of removal
		if kept[filepath.Base(name)] {
			break
		}
		s.check(os.Remove(name))
		whole(t, before, events, "a trim that was killed")
	}

	name := blockFilesInOrder(t, s.dir)
	end := name[len(name)-1]
	b, err := os.ReadFile(end)
	s.check(err)
	s.append("c.DocumentCreated", randomBytes(random, 20_000))
	now, err := os.ReadFile(end)
	s.check(err)
	s.stop()
	for range 50 {
		cut := len(b) + random.IntN(len(now)-len(b))
		s.check(os.WriteFile(end, now[:cut], 0o600))
		if found := whole(t, s.dir, events, "a write that was killed"); (found.Torn != "") != (cut > len(b)) {
			t.Fatalf("cut at %d of %d to %d it is torn: %s", cut, len(b), len(now), found.Torn)
		}
		torn := append([]byte(nil), now...)
		at := (len(b)/sector + 1 + random.IntN(10)) * sector
		clear(torn[at : at+(1+random.IntN(20))*sector])
		s.check(os.WriteFile(end, torn, 0o600))
		if found := whole(t, s.dir, events, "a power cut"); found.Torn == "" {
			t.Fatal("it is not torn")
		}
	}

	for _, file := range []string{end, filepath.Join(streamDir(s.dir), "meta.inf")} {
		s.check(os.WriteFile(end, now, 0o600))
		b, err := os.ReadFile(file)
		s.check(err)
		b[len(b)-20] ^= 1
		s.check(os.WriteFile(file, b, 0o600))
		var damage *Damage
		if _, err := Check(streamDir(s.dir), events, nil); !errors.As(err, &damage) || damage.File != file {
			t.Errorf("flipped bit of %s: got %v, want Damage of it", file, err)
		}
	}
}

func blockFilesInOrder(t *testing.T, dir string) (names []string) {
	t.Helper()
	for index := uint32(1); len(names) < len(blockFiles(t, dir)); index++ {
		name := filepath.Join(streamDir(dir), "msgs", fileName(index))
		if _, err := os.Stat(name); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// TestKilledPurge: a stream that is purged completely, as mutations are, is sound at every
// step of the purge and keeps its last sequence.
func TestKilledPurge(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for range 5 {
		s.append("c.Any", nil)
	}
	before := t.TempDir()
	s.copyTo(before)
	log, err := s.js.Stream(t.Context(), stream)
	s.check(err)
	s.check(log.Purge(t.Context(), jetstream.WithPurgeSequence(6)))
	s.stop()
	if found := whole(t, s.dir, "", "purged"); found.Last != 5 {
		t.Errorf("what is purged ends at %d", found.Last)
	}
	moved := filepath.Join(streamDir(before), "__new_msgs__")
	s.check(os.MkdirAll(moved, 0o700))
	whole(t, before, "", "begun")
	for _, name := range blockFiles(t, s.dir) {
		b, err := os.ReadFile(name)
		s.check(err)
		s.check(os.WriteFile(filepath.Join(moved, filepath.Base(name)), b, 0o600))
	}
	if found := whole(t, before, "", "moved"); found.Last != 5 {
		t.Errorf("what is to be purged ends at %d", found.Last)
	}
	s.check(os.RemoveAll(filepath.Join(streamDir(before), "msgs")))
	whole(t, before, "", "renamed")
}

// TestSkip: the server continues after the sequences that must not be used again.
func TestSkip(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for range 5 {
		s.append("c.Any", nil)
	}
	s.stop()
	s.check(whole(t, s.dir, events, "stopped").Skip(9))
	if found := whole(t, s.dir, events, "skipped"); found.Last != 9 {
		t.Errorf("it ends at %d", found.Last)
	}
	s.start()
	s.append("_.WriterStarted", []byte(`{"writer":"w","lost":6}`))
	log, err := s.js.Stream(t.Context(), stream)
	s.check(err)
	if state := log.CachedInfo().State; state.LastSeq != 10 || state.Msgs != 6 || state.FirstSeq != 1 {
		t.Errorf("the server has %+v", state)
	}
	s.stop()
	whole(t, s.dir, events, "gone on")
}

// TestKnownFiles: a file is read once, at the start or when it is full, and again when it has
// changed.
func TestKnownFiles(t *testing.T) {
	t.Parallel()
	random := stress.Rand(t)
	s := newStore(t)
	s.fill(random, 60)
	s.stop()
	name := filepath.Join(t.TempDir(), "checked")
	update := func() (*Stream, *Known, error) {
		known := OpenKnown(name)
		found, err := Check(streamDir(s.dir), events, known)
		return found, known, err
	}
	first, known, err := update()
	s.check(err)
	s.check(known.Save())
	if again, _, err := update(); err != nil || *again != *first {
		t.Errorf("then it is %+v, was %+v (%v)", again, first, err)
	}
	for _, summary := range known.now {
		summary.Judged = 1 << 40 // which is not in the file
	}
	s.check(known.Save())
	if again, _, err := update(); err != nil || again.Judged != 1<<40 {
		t.Errorf("files are read again: %+v (%v)", again, err)
	}
	file := blockFiles(t, s.dir)[0]
	b, err := os.ReadFile(file)
	s.check(err)
	binary.LittleEndian.PutUint64(b[4:], binary.LittleEndian.Uint64(b[4:])^1<<40) // the sequence
	s.check(os.WriteFile(file, b, 0o600))
	var damage *Damage
	if _, _, err := update(); !errors.As(err, &damage) || damage.File != file {
		t.Errorf("damaged file: got %v, want Damage of it", err)
	}
	// While the server runs, Update reads files that have become full.
	s = newStore(t)
	for range 12 {
		s.append("c.DocumentCreated", randomBytes(random, 2<<20))
	}
	known = OpenKnown(name)
	settled := func() int {
		s.check(known.Update(t.Context(), map[string]string{streamDir(s.dir): events}))
		return len(known.now)
	}
	changed := func(at time.Time) {
		for _, file := range blockFiles(t, s.dir) {
			s.check(os.Chtimes(file, time.Time{}, at))
		}
	}
	changed(time.Now().Add(time.Hour))
	if n := settled(); n != 0 {
		t.Errorf("%d files that have just changed are known", n)
	}
	changed(time.Now().Add(-time.Minute))
	if n, want := settled(), len(blockFiles(t, s.dir))-1; n != want || want < 2 {
		t.Errorf("%d files are known, want all %d but the last one", n, want)
	}
	for _, summary := range known.now {
		summary.Judged = 1 << 40
	}
	s.check(known.Save())
	s.stop()
	if again, _, err := update(); err != nil || again.Judged != 1<<40 {
		t.Errorf("files are read again that were full: %+v (%v)", again, err)
	}
	text, err := os.ReadFile(name)
	s.check(err)
	text[len(text)/2] ^= 1
	s.check(os.WriteFile(name, text, 0o600))
	if known := OpenKnown(name); known.was != nil {
		t.Error("what is not as it was written is trusted")
	}
}
