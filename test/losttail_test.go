package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// The files of the log, as NATS keeps them below a store directory.

func streamDir(t testing.TB, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/LAPSE_main"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the log below %s: %v, %v", dir, found, err)
	}
	return found[0]
}

func indexFile(t testing.TB, dir string) string {
	return filepath.Join(streamDir(t, dir), "msgs/index.db")
}

// block returns the first or the last file of messages.
func block(t testing.TB, dir string, last bool) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(streamDir(t, dir), "msgs/*.blk"))
	if err != nil || len(files) < 2 || len(files) > 9 {
		t.Fatalf("blocks of the log: %v, %v", files, err)
	}
	if last {
		return files[len(files)-1]
	}
	return files[0]
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	check(t, os.RemoveAll(to))
	check(t, os.CopyFS(to, os.DirFS(from)))
}

func remove(t testing.TB, path string) {
	t.Helper()
	check(t, os.RemoveAll(path))
}

// flip flips one random bit of a file.
func flip(t testing.TB, path string, random *rand.Rand) {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	at, bit := random.IntN(len(b)), random.IntN(8)
	t.Logf("bit %d of byte %d of %s, which has %d", bit, at, filepath.Base(path), len(b))
	b[at] ^= 1 << bit
	check(t, os.WriteFile(path, b, 0o600))
}

func cut(t testing.TB, path string, random *rand.Rand) {
	t.Helper()
	info, err := os.Stat(path)
	check(t, err)
	size := random.Int64N(info.Size())
	t.Logf("%s is cut to %d of %d bytes", filepath.Base(path), size, info.Size())
	check(t, os.Truncate(path, size))
}

// fill writes documents of about 40 KB each, so that a few hundred of them fill more than
// one block.
func fill(t testing.TB, nc *nats.Conn, random *rand.Rand, writes int) {
	t.Helper()
	for i := range writes {
		id := random.IntN(100)
		noise := make([]byte, random.IntN(40_000)) // so that tables are large, too
		for k := range noise {
			noise[k] = byte(random.Uint32())
		}
		tail, body := fmt.Sprintf("document.upsert.c.%d", id), fmt.Sprintf(`{"n":%d,"x":"%x"}`, i, noise)
		if i%10 == 9 {
			tail, body = fmt.Sprintf("document.delete.c.%d", id), ""
		}
		if a := ask(t, nc, tail, body); a.code >= 500 || a.code == 400 {
			t.Fatalf("%s: %d %s", tail, a.code, a.body)
		}
	}
}

func export(t testing.TB, s *harness.Server) []event {
	t.Helper()
	return parseEvents(t, s.Run("export").OK())
}

// living returns the live documents after the events of a log, with their versions.
func living(events []event) map[string]string {
	documents := make(map[string]string)
	for _, e := range events {
		switch e.Type {
		case "DocumentCreated", "DocumentReplaced":
			documents[e.ID] = fmt.Sprintf("%d %s", e.Seq, e.Body)
		case "DocumentDeleted", "DocumentExpired":
			delete(documents, e.ID)
		}
	}
	return documents
}

// served returns the documents of a server, with their versions.
func served(t testing.TB, nc *nats.Conn) map[string]string {
	t.Helper()
	documents := make(map[string]string)
	for i := range 100 {
		a := ask(t, nc, fmt.Sprintf("document.get.c.%d", i), "")
		if a.code == 404 {
			continue
		}
		var d struct {
			ID   string `json:"id"`
			ETag string `json:"_etag"`
		}
		if a.code != 200 || json.Unmarshal(a.body, &d) != nil {
			t.Fatalf("get %d: %d %.200s", i, a.code, a.body)
		}
		body, _, _ := strings.Cut(string(a.body), `,"_ts"`)
		documents[d.ID] = d.ETag + " " + body + "}"
	}
	return documents
}

// damage is a change to the store directory of a server that is down.
type damage struct {
	name string
	do   func(t testing.TB, dir string)
	// hidden says that only a projection can show that events are lost.
	hidden bool
}

// damagesOf returns all damages; older is a copy of the store directory from before.
func damagesOf(r *rand.Rand, older string) []damage {
	return []damage{
		{name: "nothing", do: func(testing.TB, string) {}},
		{name: "last block cut", do: func(t testing.TB, dir string) { cut(t, block(t, dir, true), r) }},
		{name: "first block cut", do: func(t testing.TB, dir string) { cut(t, block(t, dir, false), r) }},
		{name: "bit in the last block", do: func(t testing.TB, dir string) { flip(t, block(t, dir, true), r) }},
		{name: "bit in the first block", do: func(t testing.TB, dir string) { flip(t, block(t, dir, false), r) }},
		{name: "no last block", do: func(t testing.TB, dir string) { remove(t, block(t, dir, true)) }, hidden: true},
		{name: "no first block", do: func(t testing.TB, dir string) { remove(t, block(t, dir, false)) }, hidden: true},
		{name: "no index", do: func(t testing.TB, dir string) { remove(t, indexFile(t, dir)) }},
		{name: "bit in the index", do: func(t testing.TB, dir string) {
			if _, err := os.Stat(indexFile(t, dir)); err == nil { // after a kill there may be none
				flip(t, indexFile(t, dir), r)
			}
		}},
		{name: "no index, last block cut", do: func(t testing.TB, dir string) { remove(t, indexFile(t, dir)); cut(t, block(t, dir, true), r) }},
		{name: "no index, first block cut", do: func(t testing.TB, dir string) { remove(t, indexFile(t, dir)); cut(t, block(t, dir, false), r) }},
		{name: "no index, bit in the first block", do: func(t testing.TB, dir string) { remove(t, indexFile(t, dir)); flip(t, block(t, dir, false), r) }},
		{name: "bit in the stream's configuration", do: func(t testing.TB, dir string) { flip(t, filepath.Join(streamDir(t, dir), "meta.inf"), r) }},
		{name: "no stream", do: func(t testing.TB, dir string) { remove(t, streamDir(t, dir)) }, hidden: true},
		{name: "older stream", do: func(t testing.TB, dir string) { copyDir(t, streamDir(t, older), streamDir(t, dir)) }, hidden: true},
		{name: "everything older but the projection", do: func(t testing.TB, dir string) {
			copyDir(t, filepath.Join(older, "jetstream"), filepath.Join(dir, "jetstream"))
		}, hidden: true},
	}
}

// TestLostTail: with a log damaged in any way, after a clean stop or a kill, with the
// projection current, older or removed, lapse either refuses to serve, and says why and
// what to do; or it serves what is left of the log, reports a loss if there is one, and
// appends after it. A refusal because of a damaged file changes none. If it names
// --accept-lost-end, then that serves the rest, and audit finds the loss.
func TestLostTail(t *testing.T) {
	t.Parallel()
	r := stress.Rand(t)
	s := harness.Serve(t, "--durability", "os")
	nc := dial(t, s)
	back := func() {
		t.Helper()
		eventually(t, "the service is back", func() bool { _, err := tryAskFor(nc, "status", "", time.Second); return err == nil })
	}
	dirs := t.TempDir()
	keep := func(name string) string {
		dir := filepath.Join(dirs, name)
		copyDir(t, s.Dir, dir)
		return dir
	}
	mustAsk(t, nc, 201, "collection.create.c", "")
	fill(t, nc, r, 50)
	s.Stop()
	older := keep("older")
	s.Restart()
	back()
	fill(t, nc, r, 250)
	events := export(t, s)
	s.Kill()
	killed := keep("killed")
	s.Restart()
	back()
	s.Stop()
	stopped := keep("stopped")
	damages := damagesOf(r, older)
	s.Dir = filepath.Join(dirs, "damaged")
	outcomes := make(map[string]int)
	for range stress.Pick(1, 30) {
		r.Shuffle(len(damages), func(i, j int) { damages[i], damages[j] = damages[j], damages[i] })
		for _, d := range damages[:stress.Pick(len(damages)/2, len(damages))] {
			from, projection := []string{stopped, stopped, killed}[r.IntN(3)], r.IntN(4)
			what := fmt.Sprintf("%s; %s, projection %d", d.name, filepath.Base(from), projection)
			copyDir(t, from, s.Dir)
			switch projection {
			case 0:
				remove(t, filepath.Join(s.Dir, "projection"))
			case 1:
				copyDir(t, filepath.Join(older, "projection"), filepath.Join(s.Dir, "projection"))
			}
			d.do(t, s.Dir)
			then := harness.Files(t, s.Dir)
			if !s.Start() {
				refusesLog(t, s, what, then)
				outcomes["refused"]++
				if strings.Contains(s.Stderr(), "--accept-lost-end") {
					outcomes["accepted"]++
					acceptLoss(t, s, what, events)
				}
				continue
			}
			back()
			kept, documents := export(t, s), served(t, nc)
			servesLog(t, s, what, documents, kept, events)
			noticed := strings.Contains(s.Stderr(), `level=ERROR msg="the log`) || strings.Contains(s.Stderr(), "does not fit the log")
			switch known := from == stopped && projection > 1; {
			case len(kept) == len(events):
				outcomes["whole"]++
			case noticed:
				outcomes["shorter, noticed"]++
			case d.hidden && !known || d.name == "no first block":
				outcomes["shorter, not to be known"]++
			default:
				t.Fatalf("%s: %d of %d events are there, and nobody says so\n%s", what, len(kept), len(events), s.Stderr())
			}
			writesOn(t, s, nc, what, kept, back)
		}
	}
	t.Logf("%d events; %v", len(events), outcomes)
}

// refusesLog checks that a server ended with one line that says what to do, and left the files
// as they were if one of them is damaged.
func refusesLog(t *testing.T, s *harness.Server, what string, then map[string]string) {
	t.Helper()
	lines := harness.Lines(s.Stderr())
	if last := lines[len(lines)-1]; !strings.Contains(last, " level=ERROR ") || !strings.Contains(last, "restore") || strings.Count(s.Stderr(), " ran=") != 1 {
		t.Fatalf("%s: it refuses with\n%s", what, s.Stderr())
	}
	if now := harness.Files(t, s.Dir); strings.Contains(s.Stderr(), ".blk") && !maps.Equal(then, now) {
		t.Fatalf("%s: it refuses, and has changed files\n%s", what, s.Stderr())
	}
}

// servesLog checks that a server has documents as the log that is left makes them, whose
// events were all there before the damage.
func servesLog(t *testing.T, s *harness.Server, what string, documents map[string]string, kept, events []event) {
	t.Helper()
	for _, e := range kept {
		i := slices.IndexFunc(events, func(o event) bool { return o.Seq == e.Seq })
		if i < 0 || !reflect.DeepEqual(events[i], e) {
			t.Fatalf("%s: event %d is one that never was", what, e.Seq)
		}
	}
	// Without its beginning, a log may still serve the documents of the whole.
	if !maps.Equal(documents, living(kept)) && (len(kept) == 0 || kept[0].Seq == 1 || !maps.Equal(documents, living(events))) {
		t.Fatalf("%s: %d documents are served, the log makes %d\n%s", what, len(documents), len(living(kept)), s.Stderr())
	}
}

// acceptLoss serves what is left of a log that was refused, and then starts the server
// again, which must not ask about the loss again.
func acceptLoss(t *testing.T, s *harness.Server, what string, events []event) {
	t.Helper()
	s.With("--durability", "os", "--accept-lost-end")
	s.Restart()
	kept := export(t, s)
	a := mustAsk(t, dial(t, s), 201, "collection.create.more", "")
	if a.seq <= events[len(events)-1].Seq || len(kept) >= len(events) || !strings.Contains(s.Stderr(), "has lost its end") {
		t.Fatalf("%s: %d of %d events are left, the next is %d\n%s", what, len(kept), len(events), a.seq, s.Stderr())
	}
	if found := s.Run("audit"); found.Code != 1 || !strings.Contains(found.Stdout, "sequence") {
		t.Fatalf("%s: audit says\n%s", what, found.Stdout)
	}
	s.Kill()
	s.With("--durability", "os")
	s.Restart()
	s.Kill()
}

// writesOn appends to a log that was damaged, kills the server, and starts it again.
func writesOn(t testing.TB, s *harness.Server, nc *nats.Conn, what string, kept []event, back func()) {
	t.Helper()
	a := ask(t, nc, "collection.create.more", "")
	if a.code != 201 || len(kept) > 0 && a.seq <= kept[len(kept)-1].Seq {
		t.Fatalf("%s: after event %d a collection is made with %d at %d", what, len(kept), a.code, a.seq)
	}
	mustAsk(t, nc, 201, "document.create.more.a", "{}")
	documents := served(t, nc)
	s.Kill()
	if !s.Start() {
		t.Fatalf("%s: it was served, and no more after a kill:\n%s", what, s.Stderr())
	}
	back()
	if again := served(t, nc); !maps.Equal(again, documents) {
		t.Fatalf("%s: then there were %d documents, and are %d", what, len(documents), len(again))
	}
	mustAsk(t, nc, 200, "document.get.more.a", "")
	s.Kill()
}
