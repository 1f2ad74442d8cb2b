package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// backedUp is what lapse backup and lapse restore print.
type backedUp struct {
	Database   string
	First, Seq uint64
	Events     uint64
}

func readBackup(t testing.TB, r harness.Result) (b backedUp) {
	t.Helper()
	check(t, json.Unmarshal([]byte(r.OK()), &b))
	return b
}

// serveOperator serves with an operator, whose key is in the file that it returns.
func serveOperator(t testing.TB, args ...string) (s *harness.Server, key string) {
	t.Helper()
	key = filepath.Join(t.TempDir(), "operator.nk")
	return harness.Serve(t, append([]string{"--operator-nkey-out", key, "--durability", "os"}, args...)...), key
}

// digestAt returns the digest of the events up to seq of a database that is served.
func digestAt(t testing.TB, s *harness.Server, seq uint64) string {
	t.Helper()
	log := s.Run("export", "--until", fmt.Sprint(seq)).OK()
	return harness.Run(t, strings.NewReader(log), "replay", "-", "--digest").OK()
}

// fillBackup stores documents of all together more than one file of a backup.
func fillBackup(t testing.TB, s *harness.Server) {
	t.Helper()
	mustAsk(t, dial(t, s), 201, "collection.create.big", "")
	var lines bytes.Buffer
	for n := range 5000 {
		fmt.Fprintf(&lines, `{"id":"d%d","text":%q}`+"\n", n, strings.Repeat(fmt.Sprint(n, " "), 400))
	}
	s.RunInput(lines.String(), "import", "big", "-").OK()
}

// TestBackup: a backup that is made while clients write, in two runs, is restored elsewhere
// with the same events, sequences and times, and passes audit. The second run leaves what the
// first has written as it is. Nobody but the owner may read it. A tar of it is restored, too.
func TestBackup(t *testing.T) {
	t.Parallel()
	s, key := serveOperator(t)
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the operator's key: %v, %v", info, err)
	}
	mustAsk(t, dial(t, s), 201, "collection.create.load", fmt.Sprintf(`{"defaultTtl":%d}`, writerTTL))
	w := startWriters(t, s, 4)
	dir := filepath.Join(t.TempDir(), "backup")
	eventually(t, "some writes", func() bool { return w.count() > 500 })
	one := readBackup(t, s.Run("backup", dir, "--nkey", key))
	before := harness.Files(t, filepath.Join(dir, "LAPSE_main"))
	eventually(t, "more writes", func() bool { return w.count() > 1500 })
	two := readBackup(t, s.Run("backup", dir, "--nkey", key, "--verify"))
	if two.First != 1 || two.Seq <= one.Seq || two.Events != two.Seq {
		t.Errorf("the runs have %+v and %+v", one, two)
	}
	after := harness.Files(t, filepath.Join(dir, "LAPSE_main"))
	for name, content := range before {
		if after[name] != content {
			t.Errorf("the second run has changed %s", name)
		}
	}
	if len(after) <= len(before) {
		t.Errorf("the second run has written nothing: %d files", len(after))
	}
	tarred := s.Run("backup", "-", "--nkey", key).OK()
	w.stop()
	w.verify()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		info, _ := e.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[e.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	exported := s.Run("export", "--until", fmt.Sprint(two.Seq)).OK()
	digest := digestAt(t, s, two.Seq)

	store := t.TempDir()
	if got := readBackup(t, harness.Run(t, nil, "restore", dir, "--store-dir", store)); got != two {
		t.Errorf("restored %+v, want %+v", got, two)
	}
	restored := harness.ServeIn(t, store, "--operator-nkey-out", key)
	if restored.Run("export", "--until", fmt.Sprint(two.Seq)).OK() != exported || digestAt(t, restored, two.Seq) != digest {
		t.Error("the events restored are others")
	}
	restored.Run("audit").OK()
	mustAsk(t, dial(t, restored), 201, "document.create.load.later", "{}")
	// The next run of the backup continues with the restored log.
	if three := readBackup(t, restored.Run("backup", dir, "--nkey", key, "--verify")); three.First != 1 || three.Seq <= two.Seq {
		t.Errorf("after the restore the backup has %+v", three)
	}
	restored.Stop()

	fromTar := t.TempDir()
	harness.Run(t, strings.NewReader(tarred), "restore", "-", "--store-dir", fromTar).OK()
	restored = harness.ServeIn(t, fromTar)
	if digestAt(t, restored, two.Seq) != digest {
		t.Error("the tar has other events")
	}
	restored.Run("audit").OK()
}

// TestRestoreOver: restore refuses a database that is served, or has events that the backup
// does not have, unless it is told to lose them. lapse then folds its projection again,
// without a hint. Consumers are where they were, and no mutation is judged twice.
func TestRestoreOver(t *testing.T) {
	t.Parallel()
	s, key := serveOperator(t)
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", "")
	mustAsk(t, nc, 201, "document.create.c.a", `{"n":1}`)
	js, err := jetstream.New(nc)
	check(t, err)
	mutate := func(id string) {
		if _, err := js.Publish(t.Context(), "lapse.main.mutations.document.upsert.c."+id, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is judged", func() bool { return ask(t, nc, "document.get.c."+id, "").code == 200 })
	}
	mutate("m1")
	durable, err := js.CreateConsumer(t.Context(), "LAPSE_main", jetstream.ConsumerConfig{Durable: "shop", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "lapse.main.events.c.>"})
	check(t, err)
	next := func() uint64 {
		t.Helper()
		m, err := durable.Next()
		check(t, err)
		meta, err := m.Metadata()
		if err == nil {
			err = m.DoubleAck(t.Context())
		}
		check(t, err)
		return meta.Sequence.Stream
	}
	first := next()
	dir := t.TempDir()
	backup := readBackup(t, s.Run("backup", dir, "--nkey", key))
	digest := askDigest(t, s)
	mustAsk(t, nc, 201, "document.create.c.late", `{}`)
	mutate("m2")
	next()

	refusesLine(t, s.Run("restore", dir, "--nkey", key), "is served: stop every lapse")
	refusesLine(t, harness.Run(t, nil, "restore", dir, "--store-dir", s.Dir), "another process uses the store directory")
	refusesLine(t, harness.Run(t, nil, "restore", dir, "--store-dir", s.Dir, "--replace"), "another process uses the store directory")
	s.Stop()
	refusesLine(t, harness.Run(t, nil, "restore", dir, "--store-dir", s.Dir), "give --replace to lose them")
	s.Restart()
	mustAsk(t, nc, 200, "document.get.c.late", "")
	s.Stop()
	harness.Run(t, nil, "restore", dir, "--store-dir", s.Dir, "--replace").OK()
	s.Restart()
	if now := askDigest(t, s); now != digest {
		t.Errorf("the digest is %s, was %s", now, digest)
	}
	mustAsk(t, nc, 404, "document.get.c.late", "")
	if again := next(); again <= first || again > backup.Seq {
		t.Errorf("the consumer had %d and now receives %d; the backup ends at %d", first, again, backup.Seq)
	}
	mutate("m3")
	s.Run("audit").OK()
}

// TestBackupTrimmed: a log that retention has trimmed is backed up with the snapshot that it
// needs, and restored with it.
func TestBackupTrimmed(t *testing.T) {
	t.Parallel()
	s, key := serveOperator(t, "--retain", "1s", "--snapshot-every", "1s")
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", "")
	mustAsk(t, nc, 201, "document.create.c.old", `{}`)
	n := 0
	eventually(t, "the log is trimmed", func() bool {
		n++
		mustAsk(t, nc, 201, fmt.Sprint("document.create.c.d", n), "{}")
		return strings.Contains(s.Stderr(), "log trimmed")
	})
	dir, store := t.TempDir(), t.TempDir()
	eventually(t, "a backup", func() bool { return s.Run("backup", dir, "--nkey", key, "--verify").Code == 0 }) // the log may be trimmed meanwhile
	backup := readBackup(t, harness.Run(t, nil, "restore", dir, "--store-dir", store))
	if backup.First == 1 {
		t.Errorf("the backup begins at 1: %+v", backup)
	}
	restored := harness.ServeIn(t, store, "--retain", "1s", "--snapshot-every", "1s")
	mustAsk(t, dial(t, restored), 200, "document.get.c.old", "")
	eventually(t, "a snapshot", func() bool { return restored.Run("snapshot", "create").Code == 0 }) // lapse makes some by itself
	restored.Stop()
	restored.Restart()
	mustAsk(t, dial(t, restored), 200, "document.get.c.old", "")
}

// TestBackupKilled: a backup or restore that is killed leaves what was there before, or what
// lapse refuses, and another run completes it.
func TestBackupKilled(t *testing.T) {
	t.Parallel()
	s, key := serveOperator(t)
	fillBackup(t, s)
	dir := filepath.Join(t.TempDir(), "backup")
	killOnce(t, exists(filepath.Join(dir, "LAPSE_main", "1.blk")), "backup", dir, "--nkey", key, "--server", s.URL())
	store := filepath.Join(t.TempDir(), "store")
	if r := harness.Run(t, nil, "restore", dir, "--store-dir", store).Exits(1); !strings.Contains(r.Stderr, "there is no backup in it that was completed") {
		t.Errorf("it says %q", r.Stderr)
	}
	backup := readBackup(t, s.Run("backup", dir, "--nkey", key, "--verify"))
	digest := digestAt(t, s, backup.Seq)

	// Into an empty store, of which lapse would otherwise begin a new database.
	begun := filepath.Join(store, "restoring-main")
	killOnce(t, exists(begun), "restore", dir, "--store-dir", store)
	finish := func(store string) {
		t.Helper()
		if err := os.WriteFile(begun, nil, 0o600); err != nil { // if it was done already
			t.Fatal(err)
		}
		refusesLine(t, harness.Run(t, nil, "serve", "--store-dir", store, "--listen", "127.0.0.1:0", "--console", "off"), "`lapse restore` was interrupted")
		refusesLine(t, inStore(t, store, "delete", "main", "--yes"), "`lapse restore` was interrupted")
		harness.Run(t, nil, "restore", dir, "--store-dir", store).OK()
		restored := harness.ServeIn(t, store)
		if digestAt(t, restored, backup.Seq) != digest {
			t.Error("the events restored are others")
		}
		restored.Run("audit").OK()
		restored.Stop()
	}
	finish(store)

	// Over a database, of which nothing remains by then.
	mustAsk(t, dial(t, s), 201, "document.create.big.late", "{}")
	s.Stop()
	begun = filepath.Join(s.Dir, "restoring-main")
	log := exists(filepath.Join(s.Dir, "jetstream", "LAPSE", "streams", "LAPSE_main"))
	killOnce(t, func() bool { return !log() }, "restore", dir, "--store-dir", s.Dir, "--replace")
	finish(s.Dir)
}

// killOnce kills a command once something holds.
func killOnce(t testing.TB, holds func() bool, args ...string) {
	t.Helper()
	cmd := harness.Command(t, args...)
	check(t, cmd.Start())
	eventually(t, "the time to kill "+args[0], holds)
	check(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Log("it was done before it was killed")
	}
}

// exists reports whether there is a file.
func exists(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}

// TestBackupDiskFull: on a full disk, backup and restore end with one line that says so. What
// was backed up before stays, and another run with space completes both.
func TestBackupDiskFull(t *testing.T) {
	t.Parallel()
	s, key := serveOperator(t)
	disk := filepath.Join(t.TempDir(), "disk")
	harness.SmallDisk(t, disk, 64<<20)
	dir, b := filepath.Join(disk, "backup"), ballast{t, filepath.Join(disk, "ballast")}
	before := readBackup(t, s.Run("backup", dir, "--nkey", key))
	fillBackup(t, s)
	full := func(r harness.Result) {
		t.Helper()
		if r.Exits(1); !strings.Contains(r.Stderr, "no space left on device") && !strings.Contains(r.Stderr, "resource limits exceeded") && !strings.Contains(r.Stderr, "insufficient storage") {
			t.Errorf("it says %q", r.Stderr)
		}
	}
	b.fill()
	full(s.Run("backup", dir, "--nkey", key))
	kept := readBackup(t, harness.Run(t, nil, "restore", dir, "--store-dir", t.TempDir()))
	if kept != before {
		t.Errorf("the backup is %+v, was %+v", kept, before)
	}
	b.drop()
	backup := readBackup(t, s.Run("backup", dir, "--nkey", key, "--verify"))

	store := filepath.Join(disk, "store")
	b.fill()
	full(harness.Run(t, nil, "restore", dir, "--store-dir", store))
	b.drop()
	elsewhere := t.TempDir()
	harness.Run(t, nil, "restore", dir, "--store-dir", elsewhere).OK()
	if restored := harness.ServeIn(t, elsewhere); digestAt(t, restored, backup.Seq) != digestAt(t, s, backup.Seq) {
		t.Error("the events restored are others")
	}
}

// TestBackupDamaged: nothing is restored from a backup in which a byte has changed or a file
// is missing, and bad usage changes nothing.
func TestBackupDamaged(t *testing.T) {
	t.Parallel()
	s, key := serveOperator(t)
	mustAsk(t, dial(t, s), 201, "collection.create.c", "")
	dir, store := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "store")
	s.Run("backup", dir, "--nkey", key).OK()
	for _, name := range []string{"backup.json", "LAPSE_main/1.blk"} {
		path := filepath.Join(dir, name)
		sound, err := os.ReadFile(path)
		check(t, err)
		for _, damaged := range [][]byte{nil, sound[:len(sound)/2], append(bytes.Clone(sound), 0), bytes.Replace(sound, []byte("main"), []byte("mail"), 1)} {
			check(t, os.WriteFile(path, damaged, 0o600))
			if r := harness.Run(t, nil, "restore", dir, "--store-dir", store).Exits(1); !strings.Contains(r.Stderr, "damaged: use another backup") {
				t.Errorf("%s: %q", name, r.Stderr)
			}
			if name == "backup.json" {
				s.Run("backup", dir, "--nkey", key).Exits(1)
			}
		}
		check(t, os.WriteFile(path, sound, 0o600))
	}
	other := t.TempDir()
	check(t, os.WriteFile(filepath.Join(other, "mine"), nil, 0o600))
	for want, args := range map[string][]string{
		"has other files":                {"backup", other, "--nkey", key, "--server", s.URL()},
		"there is no backup in it":       {"restore", other, "--store-dir", store},
		"it is no tar of a backup":       {"restore", "-", "--store-dir", store},
		"connect as the operator":        {"backup", t.TempDir(), "--server", s.URL(), "--timeout", "300ms"},
		"has no log":                     {"backup", t.TempDir(), "--nkey", key, "--server", s.URL(), "--database", "none"},
		"has a backup of database main":  {"backup", dir, "--nkey", key, "--server", s.URL(), "--database", "none"},
		"--verify reads a directory":     {"backup", "-", "--verify"},
		"the backup holds database main": {"restore", dir, "--store-dir", store, "--database", "other"},
		"--store-dir and --nkey":         {"restore", dir, "--store-dir", store, "--nkey", key},
		"--replicas 3":                   {"restore", dir, "--store-dir", store, "--replicas", "3"},
		"0 arguments given":              {"restore"},
		"use one of them":                {"serve", "--operator-nkey", "UX", "--operator-nkey-out", key},
		"--operator-nkey-out is for the": {"serve", "--nats-url", s.URL(), "--operator-nkey-out", key},
		"the file has no seed of a user": {"serve", "--store-dir", store, "--operator-nkey-out", filepath.Join(dir, "backup.json")},
	} {
		code := 1
		if strings.HasPrefix(want, "--") || args[0] == "serve" || strings.Contains(want, "arguments") || strings.Contains(want, "the backup holds") {
			code = 2
		}
		r := harness.Run(t, strings.NewReader("no tar"), args...).Exits(code)
		if !strings.Contains(r.Stderr, want) || len(harness.Lines(r.Stderr)) != 1 {
			t.Errorf("%v says %q, want %q", args, r.Stderr, want)
		}
	}
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Errorf("there is a store: %v", err)
	}
	if files := harness.Files(t, other); len(files) != 1 {
		t.Errorf("the directory of others has %v", files)
	}
}
