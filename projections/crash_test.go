package projections

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestCrashAtEveryFold cuts the power after every fold of a log, keeping none, half or
// all of the unsynced data. The projection is then the state of the log up to its
// cursor, and folding the rest gives the same result as without a crash.
func TestCrashAtEveryFold(t *testing.T) {
	crashes, lost, torn := stress.Pick(60, 1000), 0, 0
	random := stress.Rand(t)
	for crashes > 0 {
		l := crashLog(random, 400)
		prefixes := foldPrefixes(t, l)
		fs := vfs.NewCrashableMem()
		s := openIn(t, fs)
		for s.Cursor().Seq < uint64(len(l.facts)) && crashes > 0 {
			rest := l.since(s.Cursor().Seq)
			must(t, s.Fold(rest[:min(1+random.IntN(80), len(rest))]))
			if random.IntN(4) == 0 {
				if _, err := s.db.AsyncFlush(); err != nil { // the crash interrupts it
					t.Fatal(err)
				}
			}
			for _, unsynced := range []int{0, 50, 100} {
				disk := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(random.Uint64(), 0))})
				crashed := openIn(t, disk)
				cursor := crashed.Cursor()
				if cursor.Seq > s.Cursor().Seq {
					t.Fatalf("the cursor is at %d, folded was up to %d", cursor.Seq, s.Cursor().Seq)
				}
				if cursor.Seq < s.Cursor().Seq {
					lost++
				}
				if cursor.Seq > 0 {
					torn++
				}
				prefixes.check(t, crashed)
				catchUp(t, crashed, l)
				prefixes.check(t, crashed)
				must(t, crashed.Close())
				crashes--
			}
		}
		must(t, s.Close())
	}
	if lost == 0 || torn == 0 {
		t.Errorf("%d crashes lost something and %d left something: this tests nothing", lost, torn)
	}
}

// crashLog returns a log of two collections whose documents are large enough to fill
// memtables, with message ids, an index, a lazy one, and events that do not fit.
func crashLog(random *rand.Rand, events int) *logbook {
	l := &logbook{now: 1000}
	versions := make(map[string]schema.Version)
	l.collection(schema.CollectionCreated, "a", `{"defaultTtl":60,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	l.collection(schema.CollectionCreated, "b", `{"defaultTtl":-1,"previousImages":false,"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/n"}]}}`)
	for len(l.facts) < events {
		l.now += random.Int64N(4)
		name := string("ab"[random.IntN(2)])
		key := fmt.Sprint(name, random.IntN(20))
		e := schema.Event{Collection: schema.CollectionName(name), ID: schema.DocumentID(key), Previous: versions[key]}
		if random.IntN(4) == 0 {
			e.MsgID = fmt.Sprint("m", random.IntN(50))
		}
		switch {
		case random.IntN(100) == 0:
			e = schema.Event{Type: schema.CollectionReplaced, Collection: "a", Body: fmt.Appendf(nil, `{"defaultTtl":%d}`, 1+random.IntN(90))}
			l.write(e)
			continue
		case random.IntN(20) == 0: // stale
			e.Type, e.Previous = schema.DocumentExpired, schema.Version(1+random.IntN(len(l.facts)))
			if e.Previous == versions[key] {
				continue
			}
			l.write(e)
			continue
		case versions[key] == 0:
			e.Type = schema.DocumentCreated
		default:
			e.Type = []schema.EventType{schema.DocumentReplaced, schema.DocumentReplaced, schema.DocumentDeleted, schema.DocumentExpired}[random.IntN(4)]
		}
		if e.Type == schema.DocumentCreated || e.Type == schema.DocumentReplaced {
			e.Body = fmt.Appendf(nil, `{"id":%q,"n":%d,"ttl":%d,"x":"%0*d"}`, key, random.IntN(9), 1+random.IntN(9), random.IntN(4000), 0)
		}
		versions[key] = l.write(e)
		if e.Body == nil {
			versions[key] = 0
		}
	}
	return l
}

// prefixes holds the state after each prefix of a log, by the prefix's length.
type prefixes []struct {
	contents map[string]string
	cursor   Cursor
	repeats  string // of all message ids
}

// foldPrefixes folds a log event by event in memory.
func foldPrefixes(t testing.TB, l *logbook) prefixes {
	t.Helper()
	p := make(prefixes, len(l.facts)+1)
	s := open(t)
	for i := range p {
		if i > 0 {
			must(t, s.Fold(l.facts[i-1:i]))
		}
		// The time when message ids are forgotten depends on the folds.
		p[i].contents, p[i].cursor, p[i].repeats = contents(t, s, "IJ"), s.Cursor(), repeats(t, s)
	}
	return p
}

// repeats returns what each message id of crashLog repeats at the time of the cursor.
func repeats(t testing.TB, s *Store) (all string) {
	t.Helper()
	for i := range 50 {
		r, ok, err := s.Repeated(fmt.Sprint("m", i), s.Cursor().Time)
		must(t, err)
		if ok {
			all += fmt.Sprint(i, r, " ")
		}
	}
	return all
}

// check fails the test unless the projection is the state of the log up to its cursor.
func (p prefixes) check(t testing.TB, s *Store) {
	t.Helper()
	cursor := s.Cursor()
	want := p[cursor.Seq]
	if got := contents(t, s, "IJ"); cursor != want.cursor || !maps.Equal(got, want.contents) {
		t.Fatalf("the cursor is %+v, want %+v; %d keys, want %d", cursor, want.cursor, len(got), len(want.contents))
	}
	if got := repeats(t, s); got != want.repeats {
		t.Fatalf("at %d message ids repeat %s, want %s", cursor.Seq, got, want.repeats)
	}
	if d, err := s.Verify(context.Background()); err != nil || d != s.Digest() {
		t.Fatalf("at %d it adds up to %v, and says %v (%v)", cursor.Seq, d, s.Digest(), err)
	}
}

// TestFlush: a power cut after a flush loses nothing.
func TestFlush(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s, l := openIn(t, disk), &logbook{now: 1000}
	defer s.Close()
	l.collection(schema.CollectionCreated, "orders", `{}`)
	for _, id := range []string{"a", "b"} {
		l.created("orders", id, `{"id":"`+id+`"}`)
		catchUp(t, s, l)
		must(t, s.Flush(t.Context()))
		crashed := openIn(t, disk.CrashClone(vfs.CrashCloneCfg{}))
		if got, want := crashed.Cursor(), s.Cursor(); got != want {
			t.Errorf("the start after a crash begins at %+v, want %+v", got, want)
		}
		if err := crashed.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBitFlips changes one bit of one file of a projection. Open refuses it, or a read fails,
// Damaged reports it and Open refuses it from then on, or the projection is still the state
// of the log up to its cursor.
func TestBitFlips(t *testing.T) {
	stress.OneGoroutine(t)
	random := stress.Rand(t)
	l := crashLog(random, 1000)
	prefixes := foldPrefixes(t, l)
	whole := t.TempDir()
	s, err := Open(whole, Options{CacheBytes: 1 << 20, MemTableBytes: 256 << 10})
	must(t, err)
	for s.Cursor().Seq < uint64(len(l.facts)) {
		rest := l.since(s.Cursor().Seq)
		must(t, s.Fold(rest[:min(100, len(rest))]))
	}
	must(t, s.Close())
	files, err := os.ReadDir(whole)
	must(t, err)
	atOpen, atRead := 0, 0
	for range stress.Pick(40, 2000) {
		dir := filepath.Join(t.TempDir(), "projection")
		must(t, os.CopyFS(dir, os.DirFS(whole)))
		name := files[random.IntN(len(files))].Name()
		b, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		if len(b) == 0 {
			continue
		}
		at := random.IntN(len(b))
		b[at] ^= 1 << random.IntN(8)
		must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		s, err := Open(dir, Options{CacheBytes: 1 << 20, DocumentBytes: 1})
		if err != nil {
			atOpen++
			continue
		}
		// Lookups read filters, which scans don't.
		_, err = s.Verify(t.Context())
		if scan := s.scan(nil, func(_, _ []byte) error { return nil }); scan == nil && !pebble.IsCorruptionError(err) {
			prefixes.check(t, s)
			_ = s.Close()
			continue
		}
		atRead++
		if len(s.Damaged()) == 0 {
			t.Errorf("bit %d of %s is wrong, and only the read says so", at, name)
		}
		_ = s.Close()
		if _, err := Open(dir, Options{}); err == nil {
			t.Errorf("bit %d of %s is wrong, and it opens again", at, name)
		}
	}
	t.Logf("%d flips noticed by Open, %d by reading", atOpen, atRead)
}
