package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// use writes, in each database, a document that stays, by request, and one that expires,
// as a mutation, and waits for the expiry.
func use(t testing.TB, nc *nats.Conn, round string, dbs ...string) {
	t.Helper()
	js, err := jetstream.New(nc)
	check(t, err)
	for _, db := range dbs {
		if a := askOf(t, nc, db, "collection.create.c", ""); a.code != 201 && a.code != 409 {
			t.Fatalf("%s: %d %s", db, a.code, a.body)
		}
		mustAskOf(t, nc, 200, db, "collection.replace.c", `{"defaultTtl":-1}`)
		mustAskOf(t, nc, 201, db, "document.create.c.stays-"+round, fmt.Sprintf(`{"of":%q}`, db))
		if _, err := js.Publish(t.Context(), "lapse."+db+".mutations.document.upsert.c.goes-"+round, fmt.Appendf(nil, `{"of":%q,"ttl":1}`, db)); err != nil {
			t.Fatal(db, err)
		}
	}
	for _, db := range dbs {
		eventually(t, "the document of "+db+" expires", func() bool {
			a := askOf(t, nc, db, "history.c.goes-"+round, "")
			return a.code == 200 && strings.Contains(string(a.body), `"DocumentExpired"`)
		})
	}
}

// isWhole checks that a database has exactly its own documents, each round once, and
// passes the audit.
func isWhole(t testing.TB, s *harness.Server, db string, rounds ...string) {
	t.Helper()
	s.Run("audit", "--database", db).OK()
	counts := map[string]int{}
	for _, line := range harness.Lines(s.Run("export", "--database", db).OK()) {
		var e struct {
			Type, ID string
			Body     struct{ Of string }
		}
		check(t, json.Unmarshal([]byte(line), &e))
		if strings.HasPrefix(e.Type, "Document") {
			counts[e.Type+" "+e.ID]++
			if e.Body.Of != db {
				t.Errorf("%s has an event of another database: %s", db, line)
			}
		}
	}
	want := map[string]int{}
	for _, round := range rounds {
		for _, what := range []string{"DocumentCreated stays-", "DocumentCreated goes-", "DocumentExpired goes-"} {
			want[what+round] = 1
		}
	}
	if !maps.Equal(counts, want) {
		t.Errorf("%s has events %v, want %v", db, counts, want)
	}
}

// TestDatabases: one process serves three databases, one of them older. Each has its own
// documents and expiries, across a kill and clean stops.
func TestDatabases(t *testing.T) {
	t.Parallel()
	metrics := harness.FreeAddr(t)
	s := harness.Serve(t, "--database", "a")
	use(t, dial(t, s), "1", "a")
	s.Stop()
	if got, want := namesIn(t, s.Dir), []string{"clock", "jetstream", "lock", "node", "projection"}; !slices.Equal(got, want) {
		t.Errorf("one database has files %v, want %v", got, want)
	}

	s.With("--database", "a,b,c", "--metrics", metrics, "--console", "127.0.0.1:0")
	s.Restart()
	want := `msg="ready: databases a, b, c at ` + s.URL() + ", kept in " + s.Dir + ", the log for ever, console: "
	_, console, found := strings.Cut(s.Stderr(), want)
	console, _, _ = strings.Cut(console, " ")
	if !found {
		t.Fatalf("it says\n%s, want %q", s.Stderr(), want)
	}
	for path, database := range map[string]string{"/b/api/status": "b", "/c/api/status": "c"} {
		if code, text := askConsole(t, console+path, ""); code != 200 || !strings.Contains(text, `"database":"`+database+`"`) {
			t.Errorf("the console at %s: %d %s", path, code, text)
		}
	}
	if code, text := askConsole(t, console, ""); code != 200 || !strings.Contains(text, "<html") {
		t.Errorf("the console is %d %s", code, text)
	}
	nc := dial(t, s)
	use(t, nc, "2", "a", "b", "c")
	use(t, nc, "3", "a", "b", "c")
	s.Kill()
	s.Restart()
	use(t, nc, "4", "a", "b", "c")
	isWhole(t, s, "a", "1", "2", "3", "4")
	isWhole(t, s, "b", "2", "3", "4")
	isWhole(t, s, "c", "2", "3", "4")

	toldApart(t, s, nc, metrics)
	s.Stop()

	// One may be served alone, and all with "*"; a keeps its file names.
	s.With("--database", "b")
	s.Restart()
	isWhole(t, s, "b", "2", "3", "4")
	s.Stop()
	s.With("--database", "*")
	s.Restart()
	use(t, dial(t, s), "5", "a", "b", "c")
	isWhole(t, s, "c", "2", "3", "4", "5")
	s.Interrupt()
	if got, want := namesIn(t, s.Dir), []string{"checked", "clock", "clock-b", "clock-c", "jetstream", "lock", "node", "projection"}; !slices.Equal(got, want) {
		t.Errorf("three databases have files %v, want %v", got, want)
	}
}

// toldApart checks that metrics, status, discovery and streams of a, b and c tell them apart.
func toldApart(t *testing.T, s *harness.Server, nc *nats.Conn, metrics string) {
	t.Helper()
	if _, text := get(t, metrics, "/metrics", ""); strings.Count(text, "\nlapse_ready{") != 3 || !strings.Contains(text, `lapse_expiries_total{database="b",rule="document"} 1`) {
		t.Errorf("the metrics are\n%s", text)
	}
	if _, text := get(t, metrics, "/status", ""); strings.Count(text, "\n") != 3 || !strings.Contains(text, `"database":"c"`) {
		t.Errorf("the statuses are\n%s", text)
	}
	if _, text := get(t, metrics, "/status?database=b", ""); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"database":"b"`) {
		t.Errorf("the status of b is\n%s", text)
	}
	if code, text := get(t, metrics, "/readyz", ""); code != 200 || text != "ok\n" {
		t.Errorf("readyz is %d %s", code, text)
	}
	if lines := harness.Lines(s.Run("status", "--all").OK()); len(lines) != 3 || !strings.Contains(lines[1], `{"database":"b","id":"`) {
		t.Errorf("status --all is\n%s", lines)
	}
	if lines := harness.Lines(s.Run("status", "--all", "--database", "b").OK()); len(lines) != 1 || !strings.HasPrefix(lines[0], `{"id":"`) {
		t.Errorf("status --all of b is\n%s", lines)
	}
	r := harness.Run(t, nil, "status", "--of", metrics, "--database", "c")
	if !strings.Contains(r.OK(), `"database":"c"`) {
		t.Errorf("the status of c is %s", r.Stdout)
	}
	r = harness.Run(t, nil, "status", "--of", metrics, "--database", "d").Exits(1)
	if !strings.Contains(r.Stderr, "is not served here") {
		t.Errorf("the status of d is %s", r.Stderr)
	}
	if m, err := nc.Request("$SRV.PING.lapse.b", nil, patience); err != nil || !strings.Contains(string(m.Data), `"database":"b"`) {
		t.Errorf("discovery of b: %v %v", m, err)
	}
	js, err := jetstream.New(nc)
	check(t, err)
	var streams []string
	for name := range js.StreamNames(t.Context()).Name() {
		streams = append(streams, name)
	}
	if want := []string{"LAPSE_a", "LAPSE_a_MUTATIONS", "LAPSE_b", "LAPSE_b_MUTATIONS", "LAPSE_c", "LAPSE_c_MUTATIONS"}; !slices.Equal(streams, want) {
		t.Errorf("clients see streams %v, want %v", streams, want)
	}
}

func namesIn(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestDatabaseFailureIsolated: a damaged log, or a projection that cannot be written, stops only
// its own database from being served.
func TestDatabaseFailureIsolated(t *testing.T) {
	t.Parallel()
	metrics := harness.FreeAddr(t)
	s := harness.Serve(t, "--database", "a,b,c", "--metrics", metrics)
	nc := dial(t, s)
	use(t, nc, "1", "a", "b", "c")
	s.Stop()
	log := filepath.Join(s.Dir, "jetstream", "LAPSE", "streams", "LAPSE_b")
	blocks, err := filepath.Glob(filepath.Join(log, "msgs", "*.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatal(blocks, err)
	}
	block := blocks[0]
	sound, err := os.ReadFile(block)
	check(t, err)
	damaged := slices.Clone(sound)
	damaged[len(damaged)/2] ^= 1
	put(t, block, damaged)
	then := harness.Files(t, log)
	extent := filepath.Join(s.Dir, "projection", "c.extent")
	remove(t, extent)
	put(t, filepath.Join(extent, "file"), []byte("where a file belongs"))

	s.Restart()
	lines := harness.Lines(s.Stderr())
	for _, want := range []string{` msg="database b is not served: `, ` msg="database c is not served: `} {
		if n := len(slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, want) })); n != 1 {
			t.Errorf("it says %d times %q:\n%s", n, want, s.Stderr())
		}
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, ` msg="ready: databases a at `) {
		t.Errorf("it says %q", last)
	}
	use(t, nc, "2", "a")
	onlyAWorks(t, nc, metrics)

	// A database that is repaired meanwhile is served again, with all its documents.
	remove(t, extent)
	eventually(t, "c is served again", func() bool { return strings.Contains(s.Stderr(), ` msg="database c is served again"`) })
	use(t, nc, "2", "c")
	s.Terminate()
	if last := s.Fails(); !strings.Contains(last, ` msg="database b is not served: `) || !strings.Contains(last, "nothing was changed") || strings.Contains(last, "database c") {
		t.Errorf("it ends with %q", last)
	}
	if now := harness.Files(t, log); !maps.Equal(then, now) {
		t.Error("the damaged log has changed")
	}

	// A kill, too, leaves the damaged log as it was.
	s.Restart()
	s.Kill()
	s.With("--database", "b")
	if s.Start() {
		t.Error("b alone is served with a damaged log")
	}
	if now := harness.Files(t, log); !maps.Equal(then, now) {
		t.Error("the damaged log has changed")
	}
	put(t, block, sound)
	s.With("--database", "a,b,c", "--metrics", metrics)
	s.Restart()
	use(t, nc, "3", "a", "b", "c")
	isWhole(t, s, "a", "1", "2", "3")
	isWhole(t, s, "b", "1", "3")
	isWhole(t, s, "c", "1", "2", "3")
	s.Stop()
}

// onlyAWorks checks what monitoring and clients see of databases a, b and c once the last two
// have failed.
func onlyAWorks(t *testing.T, nc *nats.Conn, metrics string) {
	t.Helper()
	var code int
	var text string
	eventually(t, "c has failed, and is not being started again", func() bool {
		code, text = get(t, metrics, "/readyz", "")
		return strings.Contains(text, "database c: failed: ")
	})
	if code != 503 || !strings.Contains(text, "database b: failed: ") || !strings.Contains(text, ".blk") || strings.Contains(text, "database a") {
		t.Errorf("readyz is %d\n%s", code, text)
	}
	if code, text := get(t, metrics, "/readyz?database=a", ""); code != 200 {
		t.Errorf("readyz of a is %d\n%s", code, text)
	}
	if code, text := get(t, metrics, "/healthz", ""); code != 200 {
		t.Errorf("healthz is %d, and a restart would interrupt a: %s", code, text)
	}
	_, text = get(t, metrics, "/metrics", "")
	for _, want := range []string{`lapse_ready{database="a"} 1`, `lapse_ready{database="b"} 0`, `lapse_ready{database="c"} 0`, `lapse_role{database="a",role="writer"} 1`, `lapse_role{database="b",role="writer"} 0`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the metrics have no line %s", want)
		}
	}
	if _, err := nc.Request("lapse.b.api.status", nil, time.Second); err == nil {
		t.Error("b answers")
	}
}

func put(t testing.TB, path string, text []byte) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o750))
	check(t, os.WriteFile(path, text, 0o600))
}

// TestNoDatabaseServed: a process that can serve no database ends.
func TestNoDatabaseServed(t *testing.T) {
	t.Parallel()
	refuses(t, 2, "there is no database in", "--database", "*", "--listen", "127.0.0.1:0")
	refuses(t, 2, "there is no database in the NATS server at", "--database", "*", "--nats-url", startNATS(t, nil))
	dir := t.TempDir()
	put(t, filepath.Join(dir, "projection"), []byte("not a directory"))
	r := harness.Run(t, nil, "serve", "--store-dir", dir, "--listen", "127.0.0.1:0", "--console", "off", "--database", "a,b")
	lines := harness.Lines(r.Stderr)
	if r.Code != 1 || !strings.Contains(lines[len(lines)-1], ` level=ERROR msg="no database can be served: see the lines above"`) {
		t.Errorf("it ends with %d and\n%s", r.Code, r.Stderr)
	}
}

// TestDatabasesExternal: a process that serves databases of a NATS server, and loses the log
// of one, continues with the others. Another process finds them all.
func TestDatabasesExternal(t *testing.T) {
	t.Parallel()
	url := startNATS(t, nil)
	// A lease long enough not to be lost on a busy machine.
	one := harness.ServeRemote(t, url, t.TempDir(), nil, "--database", "a,b,c", "--lease", "6s")
	if !strings.Contains(one.Stderr(), ` msg="ready: databases a (writer), b (writer), c (writer) at `+url+", projections in "+one.Dir+", the log for ever (process ") {
		t.Errorf("it says\n%s", one.Stderr())
	}
	nc := dial(t, one)
	use(t, nc, "1", "a", "b", "c")
	two := harness.ServeRemote(t, url, t.TempDir(), nil, "--database", "*", "--lease", "6s")
	if !strings.Contains(two.Stderr(), ` msg="ready: databases a (standby), b (standby), c (standby) at `) {
		t.Errorf("it says\n%s", two.Stderr())
	}
	two.Stop()
	check(t, admin(t, url).DeleteStream(t.Context(), "LAPSE_c"))
	use(t, nc, "2", "a", "b")
	if a := askOf(t, nc, "c", "document.upsert.c.x", "{}"); a.code != 503 && a.code != 504 {
		t.Errorf("without its log, c says %d %s", a.code, a.body)
	}
	use(t, nc, "3", "a", "b")
	for _, db := range []string{"a", "b"} {
		isWhole(t, one, db, "1", "2", "3")
	}
	one.Stop()
}
