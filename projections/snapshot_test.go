package projections

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/zstd"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// snapshotOf returns the archive of a projection.
func snapshotOf(t testing.TB, s *Store, fs vfs.FS) []byte {
	t.Helper()
	must(t, s.Checkpoint("checkpoint"))
	var archive bytes.Buffer
	must(t, WriteArchive(&archive, fs, "checkpoint"))
	if err := fs.RemoveAll("checkpoint"); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// someLog returns a log that is the same each time.
func someLog() *logbook { return crashLog(rand.New(rand.NewPCG(1, 2)), 200) }

// TestSnapshot: a copy is the state at its own cursor, whatever is folded after it, and
// the rest of the log folds onto it.
func TestSnapshot(t *testing.T) {
	fs, l := vfs.NewMem(), someLog()
	s := openIn(t, fs)
	defer s.Close()
	must(t, s.Fold(l.facts[:150]))
	digest, cursor := s.Digest(), s.Cursor()
	archive := snapshotOf(t, s, fs)
	catchUp(t, s, l)
	must(t, ReadArchive(bytes.NewReader(archive), fs, "copy"))
	c, err := Open("copy", Options{FS: fs, CacheBytes: 1 << 20, ReadOnly: true})
	must(t, err)
	if got, err := c.Verify(context.Background()); got != digest || c.Cursor() != cursor || err != nil {
		t.Errorf("the copy has %v at %+v, want %v at %+v (%v)", got, c.Cursor(), digest, cursor, err)
	}
	must(t, c.Close())
	c, err = Open("copy", Options{FS: fs, CacheBytes: 1 << 20})
	must(t, err)
	defer c.Close()
	catchUp(t, c, l)
	if c.Digest() != s.Digest() || !maps.Equal(contents(t, c, ""), contents(t, s, "")) {
		t.Error("the copy went another way")
	}
}

// TestDamagedArchives: ReadArchive refuses an archive that was changed anywhere, and
// Open refuses the directory that it leaves.
func TestDamagedArchives(t *testing.T) {
	fs, l := vfs.NewMem(), someLog()
	s := openIn(t, fs)
	defer s.Close()
	catchUp(t, s, l)
	want := contents(t, s, "")
	archive := snapshotOf(t, s, fs)
	random := stress.Rand(t)
	for name, damage := range map[string]func([]byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"truncated": func(b []byte) []byte { return b[:random.IntN(len(b))] },
		"one flip": func(b []byte) []byte {
			b[random.IntN(len(b))] ^= 1 << random.IntN(8)
			return b
		},
		"a stretch of zeros": func(b []byte) []byte {
			from := random.IntN(len(b) - 64)
			clear(b[from : from+64])
			return b
		},
		"anything": func(b []byte) []byte {
			for i := range b {
				b[i] = byte(random.Uint32())
			}
			return b[:random.IntN(len(b))]
		},
		"a stretch twice": func(b []byte) []byte {
			at := random.IntN(len(b))
			return append(append([]byte(nil), b[:at]...), b[at/2:]...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range stress.Pick(20, 2000) {
				damaged := damage(bytes.Clone(archive))
				if bytes.Equal(damaged, archive) {
					continue
				}
				if err := ReadArchive(bytes.NewReader(damaged), fs, "copy"); err != nil {
					if c, err := Open("copy", Options{FS: fs}); err == nil {
						t.Fatal("what is not whole was opened", c.Close())
					}
					continue
				}
				// A change in bytes that Zstandard ignores is not detected.
				c, err := Open("copy", Options{FS: fs, CacheBytes: 1 << 20})
				if err != nil {
					t.Fatalf("it was read without an error, and is none: %v", err)
				}
				if !maps.Equal(contents(t, c, ""), want) {
					t.Fatal("another content was accepted as sound")
				}
				must(t, c.Close())
			}
		})
	}
}

// TestArchiveNames: ReadArchive writes no file outside its directory.
func TestArchiveNames(t *testing.T) {
	for _, header := range []tar.Header{{Name: "../x"}, {Name: "a/b"}, {Name: `a\b`}, {Name: ".."}, {Name: "."}, {Name: "x/"}, {Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/x"}} {
		var archive bytes.Buffer
		compressed, err := zstd.NewWriter(&archive)
		must(t, err)
		w := tar.NewWriter(compressed)
		must(t, errors.Join(w.WriteHeader(&header), w.Close(), compressed.Close()))
		if err := ReadArchive(&archive, vfs.NewMem(), "copy"); err == nil || !strings.Contains(err.Error(), "is not a file of a projection") {
			t.Errorf("%s: %v", header.Name, err)
		}
	}
}

func FuzzReadArchive(f *testing.F) {
	fs, l := vfs.NewMem(), someLog()
	s, err := Open("projection", Options{FS: fs, CacheBytes: 1 << 20, MemTableBytes: 256 << 10})
	must(f, err)
	must(f, s.Fold(l.facts))
	f.Add(snapshotOf(f, s, fs))
	must(f, s.Close())
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		fs := vfs.NewMem()
		if err := ReadArchive(io.LimitReader(bytes.NewReader(archive), 1<<20), fs, "copy"); err == nil {
			if names, err := fs.List("copy"); err != nil || strings.Contains(fmt.Sprint(names), "DAMAGED") {
				t.Errorf("%v is in place (%v)", names, err)
			}
		}
	})
}

// TestPruneAndCompact: after Prune and Compact no file has content or ids of documents that
// ended and are no longer in the log, not even the lowest files, where most documents live
// and nothing else would rewrite them.
func TestPruneAndCompact(t *testing.T) {
	fs := vfs.NewMem()
	s, l := openIn(t, fs), &logbook{now: 1000}
	defer func() { must(t, s.Close()) }()
	const n, every = 2500, 500
	marker := func(i int) string { return fmt.Sprintf("marker%016x", rand.New(rand.NewPCG(uint64(i), 7)).Uint64()) }
	l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":100,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	l.collection(schema.CollectionCreated, "carts", `{}`)
	var versions [n]schema.Version
	var ended []string // ids and contents
	for i := range n {
		noise := strings.Join([]string{marker(2*n + 2*i), marker(2*n + 2*i + 1)}, strings.Repeat(marker(i)[6:], 30))
		versions[i] = l.created("orders", marker(i), fmt.Sprintf(`{"id":%q,"n":%q,"x":%q}`, marker(i), marker(n+i), noise))
		if i%every == 0 {
			ended = append(ended, marker(i), marker(n+i), marker(2*n+2*i), marker(2*n+2*i+1))
		}
	}
	ended = append(ended, marker(4*n))
	l.created("carts", marker(4*n), fmt.Sprintf(`{"id":%q}`, marker(4*n)))
	catchUp(t, s, l)
	must(t, s.Compact(t.Context()))
	l.now += 100
	for i := 0; i < n; i += every {
		l.document(schema.DocumentExpired, "orders", marker(i), versions[i], "")
	}
	l.collection(schema.CollectionDeleted, "carts", `{}`)
	catchUp(t, s, l)
	if !eventually(t, fs, ended, true) {
		t.Fatal("there was nothing to find before either")
	}
	last := s.Cursor().Seq
	// While the log has the events, history needs them.
	for _, first := range []uint64{1, 3 + n} {
		if pruned, err := s.Prune(context.Background(), first); pruned || err != nil {
			t.Errorf("something was pruned below %d (%v)", first, err)
		}
	}
	lives, err := s.Lives("orders", schema.DocumentID(marker(0)), 10)
	if len(lives) != 1 || err != nil {
		t.Errorf("the lives are %v (%v)", lives, err)
	}
	digest := s.Digest()
	if pruned, err := s.Prune(context.Background(), last+1); !pruned || err != nil {
		t.Fatalf("nothing was pruned (%v)", err)
	}
	must(t, s.Compact(context.Background()))
	if !eventually(t, fs, ended, false) {
		t.Errorf("they are still there: %.1000v", places(t, fs, ended))
	}
	for _, name := range []schema.CollectionName{"orders", "carts"} {
		for _, i := range []int{0, 4 * n} {
			if lives, err := s.Lives(name, schema.DocumentID(marker(i)), 10); len(lives) != 0 || err != nil {
				t.Errorf("%s has lives %v (%v)", name, lives, err)
			}
		}
	}
	if d, err := s.Verify(context.Background()); d != digest || err != nil {
		t.Errorf("the digest was %v and is %v (%v)", digest, d, err)
	}
	if pruned, err := s.Prune(context.Background(), last+1); pruned || err != nil {
		t.Errorf("it was pruned twice (%v)", err)
	}
}

// eventually reports whether markers are in files of the projection, or are not, within a while:
// Pebble replaces files in the background.
func eventually(t *testing.T, fs vfs.FS, markers []string, there bool) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if len(places(t, fs, markers)) > 0 == there {
			return true
		}
	}
	return false
}

// places returns the files that have a marker.
func places(t *testing.T, fs vfs.FS, markers []string) (found []string) {
	for name, content := range filesOf(t, fs) {
		for _, marker := range markers {
			// Snappy keeps the half of a marker that no other marker has.
			if half := marker[10:]; bytes.Contains(content, []byte(half)) {
				found = append(found, name+": "+half)
			}
		}
	}
	return found
}

// filesOf returns the contents of the projection's files by name, except those that
// Pebble removes meanwhile.
func filesOf(t *testing.T, fs vfs.FS) map[string][]byte {
	t.Helper()
	names, err := fs.List("projection")
	must(t, err)
	files := make(map[string][]byte)
	for _, name := range names {
		file, err := fs.Open(fs.PathJoin("projection", name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if files[name], err = io.ReadAll(file); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
	}
	return files
}

// TestCompactWhileFolding: Compact ends with its context, and finishes while others fold.
func TestCompactWhileFolding(t *testing.T) {
	s, l := open(t), someLog()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	must(t, s.Fold(l.facts[:100]))
	if err := s.Compact(ctx); err == nil {
		t.Error("it went on")
	}
	done := make(chan error)
	go func() {
		for range 20 {
			if err := s.Compact(context.Background()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := 100; i < len(l.facts); i++ {
		must(t, s.Fold(l.facts[i:i+1]))
	}
	must(t, <-done)
	if d, err := s.Verify(context.Background()); d != s.Digest() || err != nil {
		t.Errorf("%v, want %v (%v)", d, s.Digest(), err)
	}
}

func TestRepeatsFrom(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	want := func(now int64, seq uint64) {
		t.Helper()
		if got, ok, err := s.RepeatsFrom(now); got != seq || ok != (seq != 0) || err != nil {
			t.Errorf("at %d the first is %d, want %d (%v)", now, got, seq, err)
		}
	}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	catchUp(t, s, l)
	want(1000_000, 0)
	for i, id := range []string{"m", "n", "m"} {
		l.now = 1000 + int64(i)*60
		e := schema.Event{Type: schema.DocumentCreated, Collection: "orders", ID: schema.DocumentID(fmt.Sprint(i)), MsgID: id, Body: fmt.Appendf(nil, `{"id":"%d"}`, i)}
		l.write(e)
	}
	catchUp(t, s, l)
	want(1119_999, 3) // the first m was used again
	want(1179_999, 3)
	want(1180_000, 4)
	want(1239_999, 4)
	want(1240_000, 0)
	// Within a second, the first is that by sequence, not by id.
	l.now = 2000
	for i, id := range []string{"b", "c", "a"} {
		l.write(schema.Event{Type: schema.DocumentCreated, Collection: "orders", ID: schema.DocumentID("x" + id), MsgID: id, Body: fmt.Appendf(nil, `{"id":"x%s","n":%d}`, id, i)})
	}
	catchUp(t, s, l)
	want(2000_000, 5)
}

// TestForget: Forget drops message ids although nothing is folded any more.
func TestForget(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	l.write(schema.Event{Type: schema.DocumentCreated, Collection: "orders", ID: "a", MsgID: "m", Body: []byte(`{"id":"a"}`)})
	catchUp(t, s, l)
	ids := func() (n int) {
		for key := range contents(t, s, "") {
			if key[0] == keyMessage || key[0] == keyMessageTime {
				n++
			}
		}
		return n
	}
	if forgotten, err := s.Forget(1000_000 + RepeatWindow - 1); forgotten || err != nil || ids() != 2 {
		t.Errorf("within the window %d are left (%v)", ids(), err)
	}
	if forgotten, err := s.Forget(1001_000 + RepeatWindow); !forgotten || err != nil || ids() != 0 {
		t.Errorf("beyond the window %d are left (%v)", ids(), err)
	}
	if forgotten, err := s.Forget(1002_000 + RepeatWindow); forgotten || err != nil {
		t.Errorf("nothing was forgotten twice (%v)", err)
	}
}
