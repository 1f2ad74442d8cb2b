package test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// judged is an event as JSON, as far as the judge reads it.
type judged struct {
	Seq                  uint64
	Type, Collection, ID string
}

// judge fails the test unless what was done has each event of the log's collection orders at
// least once, and in the order of the log for each document, repeats apart.
func judge(t *testing.T, s *harness.Server, done []judged) {
	t.Helper()
	first, last := map[uint64]bool{}, map[string]uint64{}
	for _, e := range done {
		if first[e.Seq] {
			continue
		}
		first[e.Seq] = true
		if e.Seq < last[e.ID] {
			t.Errorf("event %d of %s comes after event %d", e.Seq, e.ID, last[e.ID])
		}
		last[e.ID] = e.Seq
	}
	n := 0
	for _, line := range harness.Lines(s.Run("export").OK()) {
		var e judged
		check(t, json.Unmarshal([]byte(line), &e))
		if e.Collection != "orders" || e.ID == "" {
			continue
		}
		if n++; !first[e.Seq] {
			t.Errorf("nothing was done for event %d of %s", e.Seq, e.ID)
		}
	}
	if n == 0 {
		t.Error("the log has no event to judge")
	}
	t.Logf("%d events, done %d times", n, len(done))
}

// actor starts a watch that acts for the documents of orders. It returns when it is ready.
func actor(t *testing.T, s *harness.Server, args ...string) *harness.Process {
	t.Helper()
	cmd := harness.Command(t, append([]string{"watch", "--server", s.URL(), "--durable", "j", "--since", "1", "--collection", "orders"}, args...)...)
	cmd.Env = append(cmd.Env, "LAPSE_STORE_DIR=/secret/of/lapse", "NATS_PASSWORD=hunter2", "LC_ALL=C")
	p := harness.StartProcess(t, cmd, nil)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Log(p.Output())
		}
	})
	eventually(t, "the watch is ready", func() bool { return strings.Contains(p.Output(), "ready: ") })
	return p
}

// lines reads the events that commands have appended to a file.
func lines(t *testing.T, path string) (done []judged) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, line := range harness.Lines(string(text)) {
		var e judged
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		done = append(done, e)
	}
	return done
}

// caughtUp reports whether the durable has acknowledged all events.
func caughtUp(t *testing.T, s *harness.Server) bool {
	for _, line := range harness.Lines(s.Run("consumers", "--json").OK()) {
		var c struct {
			Name             string
			Pending, Unacked int
		}
		check(t, json.Unmarshal([]byte(line), &c))
		if c.Name == "j" {
			return c.Pending+c.Unacked == 0
		}
	}
	return false
}

// batch writes each of ten documents once.
func batch(t *testing.T, s *harness.Server, round int) {
	t.Helper()
	var operations []string
	for i := range 10 {
		operations = append(operations, fmt.Sprintf(`{"op":"upsert","id":"d%d","body":{"round":%d}}`, i, round))
	}
	nc := dial(t, s)
	defer nc.Close()
	m, err := nc.Request("lapse.main.api.batch.orders", []byte(`{"operations":[`+strings.Join(operations, ",")+`]}`), patience)
	if err != nil || m.Header.Get("Lapse-Status") != "200" {
		t.Fatalf("%+v, %v", m, err)
	}
}

// TestExecSurvivesKills: a command is run for each event at least once and in order for each
// document, though watch and serve are killed; SIGTERM ends watch with 0.
func TestExecSurvivesKills(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "orders").OK()
	log := filepath.Join(t.TempDir(), "log")
	args := []string{"--exec", "cat >>" + log}
	p := actor(t, s, args...)
	for round := range 12 {
		batch(t, s, round)
		before := len(lines(t, log))
		switch round % 4 {
		case 0:
			p.Kill()
			p = actor(t, s, args...)
		case 1:
			s.Kill()
			s.Restart()
		case 2:
			if code := p.End(syscall.SIGTERM); code != 0 {
				t.Fatalf("SIGTERM ends watch with %d: %s", code, p.Output())
			}
			p = actor(t, s, args...)
		}
		eventually(t, "it goes on", func() bool { return len(lines(t, log)) > before })
	}
	eventually(t, "all is done", func() bool { return caughtUp(t, s) })
	judge(t, s, lines(t, log))
}

// endpoint is a receiver of requests that misbehaves at the first try for each event, by the
// id of the document.
type endpoint struct {
	*httptest.Server
	mu    sync.Mutex
	tries map[uint64]int
	done  []judged
	wrong []string
}

const loginOfTest, secretOfTest = "hunter2", "s3cret-of-the-webhook"

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{tries: map[uint64]int{}}
	e.Server = httptest.NewServer(e)
	t.Cleanup(func() { e.CloseClientConnections(); e.Close() })
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the watch was killed
	}
	var of judged
	e.mu.Lock()
	err = json.Unmarshal(body, &of)
	if _, password, _ := r.BasicAuth(); err != nil || password != loginOfTest || r.URL.Path != "/hook" || r.Header.Get("Idempotency-Key") != fmt.Sprintf("main-%d", of.Seq) || !signed(r, body) {
		e.wrong = append(e.wrong, fmt.Sprintf("%s %s %v %s", r.Method, r.URL, r.Header, body))
	}
	e.tries[of.Seq]++
	first := e.tries[of.Seq] == 1
	if of.ID != "bad" && (!first || of.ID != "hangs" && of.ID != "half" && of.ID != "redirect" && of.ID != "fails") {
		e.done = append(e.done, of)
	}
	e.mu.Unlock()
	switch {
	case of.ID == "bad", of.ID == "fails" && first:
		http.Error(w, "no", http.StatusInternalServerError)
	case of.ID == "hangs" && first:
		<-r.Context().Done()
	case of.ID == "half" && first:
		conn, _, _ := http.NewResponseController(w).Hijack()
		_, _ = io.WriteString(conn, "HTTP/1.1 20")
		conn.Close()
	case of.ID == "redirect" && first:
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	case of.ID == "endless":
		for {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}
}

// signed reports whether a request has the signature of its body.
func signed(r *http.Request, body []byte) bool {
	at, signature, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Lapse-Signature"), "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte(secretOfTest))
	fmt.Fprintf(mac, "%s.%s", at, body)
	return ok && fmt.Sprintf("%x", mac.Sum(nil)) == signature
}

// private writes a file that only its owner may read.
func private(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, text+"\n")
	return path
}

// TestPost: each event is sent at least once and in order for each document, signed, to an
// endpoint that hangs, closes half-way, redirects, fails or replies without end. What fails
// always is put aside. Neither login nor secret are shown, and metrics count.
func TestPost(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "orders").OK()
	e := newEndpoint(t)
	metrics := harness.FreeAddr(t)
	args := []string{"--post-file", private(t, strings.Replace(e.URL, "http://", "http://shop:"+loginOfTest+"@", 1)+"/hook"), "--secret-file", private(t, secretOfTest),
		"--run-timeout", "1s", "--tries", "3", "--poison", "failed", "--workers", "3", "--metrics", metrics}
	p := actor(t, s, args...)
	ids := strings.Fields("good hangs half redirect fails endless bad")
	for round := range 3 {
		for _, id := range ids {
			s.Run("document", "upsert", "orders", id, fmt.Sprintf(`{"round":%d}`, round)).OK()
		}
		p.Kill()
		p = actor(t, s, args...)
	}
	eventually(t, "all is done", func() bool { return caughtUp(t, s) })
	_, counted := get(t, metrics, "/metrics", "")
	for _, line := range []string{"tries_total", "failures_total", "poison_total", "behind_events"} {
		if !strings.Contains(counted, "\nlapse_watch_"+line+`{database="main",durable="j"} `) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if !strings.Contains(counted, `lapse_watch_behind_events{database="main",durable="j"} 0`+"\n") {
		t.Error("the metrics do not tell that all is done")
	}
	var bad []judged
	for _, line := range harness.Lines(s.Run("query", "failed", "--all").OK()) {
		var u struct {
			ID, Durable, Error string
			Seq                uint64
			Event              judged
		}
		if err := json.Unmarshal([]byte(line), &u); err != nil || u.Event.ID != "bad" || u.Event.Seq != u.Seq || u.ID != fmt.Sprintf("j-%d", u.Seq) || u.Durable != "j" {
			t.Errorf("put aside: %s, %v", line, err)
		}
		bad = append(bad, u.Event)
	}
	if len(bad) != 3 {
		t.Errorf("%d events were put aside", len(bad))
	}
	if code := p.End(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM ends watch with %d", code)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	judge(t, s, append(e.done, bad...))
	if len(e.wrong) > 0 {
		t.Errorf("wrong requests: %q", e.wrong)
	}
	for _, secret := range []string{loginOfTest, secretOfTest, "/hook"} {
		if all := p.Output() + strings.Join(p.Args, " ") + s.Run("export").OK(); strings.Contains(all, secret) {
			t.Errorf("%q is shown: %s", secret, all)
		}
	}
}

// TestFailingCommand: an event whose command fails holds up its own document, not the others,
// with any number of workers; put aside into a file, it is a line there.
func TestFailingCommand(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "orders").OK()
	dir := t.TempDir()
	log, aside := filepath.Join(dir, "log"), filepath.Join(dir, "aside")
	for _, id := range strings.Fields("bad a bad b bad c") {
		s.Run("document", "upsert", "orders", id, "{}").OK()
	}
	command := []string{"--workers", "1", "--exec", `read -r event; case $event in *'"id":"bad"'*) exit 1;; esac; echo "$event" >>` + log}
	p := actor(t, s, command...)
	eventually(t, "the others are done", func() bool { return len(lines(t, log)) == 4 }) // with the creation of the collection
	p.Kill()
	p = actor(t, s, append(command, "--tries", "2", "--poison-file", aside)...)
	eventually(t, "all is done", func() bool { return caughtUp(t, s) })
	if code := p.End(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM ends watch with %d", code)
	}
	done := lines(t, log)
	text, err := os.ReadFile(aside)
	for _, line := range harness.Lines(string(text)) {
		var u struct {
			Error string
			Event judged
		}
		if err := json.Unmarshal([]byte(line), &u); err != nil || !strings.Contains(u.Error, "exit status 1") && !strings.Contains(u.Error, "the process ended") {
			t.Errorf("put aside: %s, %v", line, err)
		}
		done = append(done, u.Event)
	}
	if err != nil {
		t.Error(err)
	}
	judge(t, s, done)
}

// TestLargePoison: an event that is too large for a document of --poison is put aside without
// its content.
func TestLargePoison(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "orders").OK()
	nc := dial(t, s)
	defer nc.Close()
	m, err := nc.Request("lapse.main.api.document.create.orders.big", []byte(`{"text":"`+strings.Repeat("x", 2<<20-100)+`"}`), patience)
	if err != nil || m.Header.Get("Lapse-Status") != "201" {
		t.Fatalf("%+v, %v", m.Header, err)
	}
	actor(t, s, "--type", "DocumentCreated", "--exec", "exit 9", "--tries", "1", "--poison", "failed")
	eventually(t, "it is put aside", func() bool { return caughtUp(t, s) })
	want := fmt.Sprintf(`{"id":"j-%s","durable":"j","seq":%[1]s,"error":"exit status 9",`, m.Header.Get("Lapse-Seq"))
	if got := s.Run("document", "get", "failed", "j-"+m.Header.Get("Lapse-Seq")).OK(); !strings.HasPrefix(got, want) || strings.Contains(got, "event") {
		t.Errorf("got %.300s, want %s", got, want)
	}
}

// TestCommandEndsWithWatch: a command gets the variables that are named and no others, and
// does not outlive a watch that is killed.
func TestCommandEndsWithWatch(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "orders").OK()
	s.Run("document", "upsert", "orders", "a", "{}").OK()
	file := filepath.Join(t.TempDir(), "environment")
	p := actor(t, s, "--exec", "{ echo pid=$$; env; } >"+file+".new; mv "+file+".new "+file+"; exec sleep 1000")
	eventually(t, "the command runs", func() bool { _, err := os.Stat(file); return err == nil })
	text, err := os.ReadFile(file)
	check(t, err)
	var names []string
	pid := 0
	for _, line := range harness.Lines(string(text)) {
		name, value, _ := strings.Cut(line, "=")
		if name == "pid" {
			pid, _ = strconv.Atoi(value)
		} else if name != "PWD" && name != "_" && name != "SHLVL" && name != "OLDPWD" { // of the shell
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); strings.Replace(got, " TMPDIR", "", 1) != "HOME LAPSE_SEQ LC_ALL PATH TZ" {
		t.Errorf("the command has %s", got)
	}
	p.Kill()
	if runtime.GOOS == "linux" {
		eventually(t, "the command is ended", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z ") // where nobody waits for orphans
		})
	} else {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// TestDryRun: it prints what would be sent, without the login, and does and stores nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "orders").OK()
	s.Run("document", "upsert", "orders", "a", "{}").OK()
	asked, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer asked.Close()
	f := s.Follow("watch", "--durable", "j", "--since", "1", "--type", "DocumentCreated", "--dry-run", "--secret-file", private(t, secretOfTest),
		"--post-file", private(t, "http://shop:hunter2@"+asked.Addr().String()+"/hook"))
	var line struct {
		Post    string
		Headers http.Header
		Body    judged
	}
	text := f.Line()
	if err := json.Unmarshal([]byte(text), &line); err != nil || line.Body.ID != "a" || line.Post != "http://"+asked.Addr().String() ||
		line.Headers.Get("Idempotency-Key") != fmt.Sprintf("main-%d", line.Body.Seq) || line.Headers.Get("Lapse-Signature") == "" || strings.Contains(text, "hunter2") {
		t.Errorf("%s, %v", text, err)
	}
	if r := f.Interrupt(); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	if all := s.Run("consumers", "--json").OK(); strings.Contains(all, `"j"`) {
		t.Errorf("it stores its position: %s", all)
	}
	f = s.Follow("watch", "--durable", "j", "--since", "1", "--type", "DocumentCreated", "--dry-run", "--exec", "mail ann")
	if got, want := f.Line(), `"exec":"mail ann","input":{"seq":`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	f.Interrupt()
}
