package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/lapsetest"
	"github.com/lapsedb/lapse/test/harness"
)

// moment is the replies of a server at a moment.
type moment struct {
	at            time.Time // all replies came within this second
	seq           uint64    // of the state of all replies
	steady, brief string    // replies to queries
	document      string
	digest        string
}

const orderedQuery = `{"where":"doc.n >= params.n","params":{"n":0},"orderBy":[{"path":"/n","desc":true}],"limit":1000}`

// takeMoment asks a server; ok is false unless all replies are of one second and state.
func takeMoment(t testing.TB, s *harness.Server, id string) (m moment, ok bool) {
	t.Helper()
	nc := dial(t, s)
	defer nc.Close()
	m.at = time.Now()
	steady := mustAsk(t, nc, 200, "query.steady", orderedQuery)
	brief := mustAsk(t, nc, 200, "query.brief", orderedQuery)
	document := ask(t, nc, "document.get.brief."+id, "")
	m.digest = askStatus(t, nc).Digest
	m.seq, m.steady, m.brief = steady.seq, string(steady.body), string(brief.body)
	if document.code == 200 {
		m.document = string(document.body)
	}
	seq, _, _ := strings.Cut(m.digest, ":")
	return m, steady.seq == brief.seq && brief.seq == document.seq && seq == strconv.FormatUint(m.seq, 10) && time.Now().Unix() == m.at.Unix()
}

// TestReplay: a replay of the export gives the server's replies at every sequence and
// moment, and the digest of a log is the same, whoever folds it.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	nc := dial(t, s)
	paths := `"indexingPolicy":{"includedPaths":[{"path":"/n"}]}`
	mustAsk(t, nc, 201, "collection.create.steady", "{"+paths+"}")
	mustAsk(t, nc, 201, "collection.create.brief", `{"defaultTtl":1,`+paths+"}")
	var moments []moment
	eventually(t, "moments while documents expired", func() bool {
		i := len(moments)
		mustAsk(t, nc, 201, fmt.Sprintf("document.create.brief.%d", i), fmt.Sprintf(`{"n":%d,"ttl":%d}`, i, 1+i%3))
		code := ask(t, nc, fmt.Sprintf("document.upsert.steady.%d", i%5), fmt.Sprintf(`{"n":%d}`, i)).code
		if m, ok := takeMoment(t, s, fmt.Sprint(max(0, i-7))); ok && code/100 == 2 {
			moments = append(moments, m)
		} else if code := ask(t, nc, fmt.Sprintf("document.delete.brief.%d", i), "").code; code != 204 && code != 404 { // so that it can be created again
			t.Fatalf("document.delete.brief.%d: %d, want 204, or 404 once it has expired", i, code)
		}
		time.Sleep(100 * time.Millisecond)
		return len(moments) >= 20 && moments[len(moments)-1].document == ""
	})
	s.Stop()
	s.Restart() // appends an internal event, which no export has
	log := s.Run("export").OK()
	lines := harness.Lines(log)
	file := filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, m := range moments {
		until := strconv.FormatUint(m.seq, 10)
		got := harness.Run(t, nil, "replay", file, "--until", until, "--query", "steady", orderedQuery, "--digest").OK()
		if want := m.steady + "\n" + m.digest + "\n"; got != want {
			t.Errorf("until %d\n%s, want\n%s", m.seq, got, want)
		}
		// The state at that sequence, and its documents that were live at that moment.
		var head strings.Builder
		for j, e := range parseEvents(t, log) {
			if e.Seq <= m.seq {
				head.WriteString(lines[j] + "\n")
			}
		}
		r := harness.Run(t, strings.NewReader(head.String()), "replay", "-", "--until", m.at.Format(time.RFC3339Nano),
			"--get", fmt.Sprintf("brief/%d", max(0, i-7)), "--query", "brief", orderedQuery)
		want, code := m.document+"\n"+m.brief+"\n", 0
		if m.document == "" {
			want, code = m.brief+"\n", 1
		}
		if got := r.Exits(code).Stdout; got != want {
			t.Errorf("at %s of %d\n%s, want\n%s", m.at, m.seq, got, want)
		}
	}

	// The digest is the same after a replay, a rebuild by a server, and a load.
	eventually(t, "all that was due expired", func() bool { return askStatus(t, nc).PendingExpiry+askStatus(t, nc).Overdue == 0 })
	want := askStatus(t, dial(t, s)).Digest
	log = s.Run("export").OK()
	if got := harness.Run(t, strings.NewReader(log), "replay", "-").OK(); got != want+"\n" {
		t.Errorf("the digest of the replay is %s, the server's %s", got, want)
	}
	s.Stop()
	if err := os.RemoveAll(filepath.Join(s.Dir, "projection")); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	if got := askStatus(t, dial(t, s)).Digest; got != want {
		t.Errorf("the digest of a rebuild is %s, it was %s", got, want)
	}
	db := lapsetest.New(t)
	db.Load(strings.NewReader(log))
	if got := db.Digest(); got != want {
		t.Errorf("the digest of a load is %s, the server's %s", got, want)
	}
}

// TestReplayOfSimulation: at any moment of the log that simulate prints, the open
// sessions are live, and lapsetest makes the same log of the same hits.
func TestReplayOfSimulation(t *testing.T) {
	t.Parallel()
	hits, file := readHits(t)
	const ttl = 1800
	input := sessionsInput(file, ttl)
	log := harness.Run(t, bytes.NewReader(input), "simulate", "-").OK()
	for i := 0; i < len(hits); i += len(hits) / 12 {
		at := hits[i].At
		open := make(map[string]bool) // latest hit so far is less than half an hour old
		last := make(map[string]int64)
		for _, h := range hits {
			if !h.At.After(at) {
				last[h.ID] = h.At.Unix()
			}
		}
		for id, second := range last {
			if second+ttl > at.Unix() {
				open[id] = true
			}
		}
		got := harness.Run(t, strings.NewReader(log), "replay", "-", "--until", at.Format(time.RFC3339Nano), "--query", "sessions", `{"count":true}`).OK()
		if want := fmt.Sprintf("{\"count\":%d}\n", len(open)); got != want {
			t.Errorf("at %s %s, want %s", at, got, want)
		}
	}
	db := lapsetest.New(t)
	db.Simulate(bytes.NewReader(input))
	db.Finish()
	if db.Log() != log {
		t.Error("lapsetest makes another log of the hits than simulate")
	}
	if got := harness.Run(t, strings.NewReader(log), "replay", "-").OK(); got != db.Digest()+"\n" {
		t.Errorf("the digest is %s, of lapsetest %s", got, db.Digest())
	}
}

// TestReplayInterrupted: Ctrl-C ends a replay while it waits for input or reads it, and
// leaves no file behind.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := harness.Command("replay", "-")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	if _, err := in.Write([]byte(`{"seq":1,"time":"2015-05-17T10:05:00.000Z","type":"CollectionCreated","collection":"c","body":{}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	files := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	eventually(t, "a replay that has files", func() bool { return len(files()) > 0 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("it ended with %d, %q and %q", code, stdout.String(), stderr.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v %v", left, err)
	}
}
