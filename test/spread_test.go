package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/cluster"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// spreadScene is processes that share databases on a NATS cluster.
type spreadScene struct {
	t         *testing.T
	clients   *cluster.Access
	control   *nats.Conn
	databases []string
	processes []*lapse
	users     []*spreadUser
}

// TestSpread: processes on a NATS cluster share their databases evenly: at first, after one
// is killed, is back, is frozen, is cut off from NATS. Each database has two copies; a
// client of each writes and reads. Nothing acknowledged is lost, each version
// expires once, and all have the same state.
func TestSpread(t *testing.T) {
	if !stress.Long() {
		t.Parallel()
	}
	s := &spreadScene{t: t}
	nats := cluster.Start(t, t.TempDir(), cluster.Options{})
	s.clients, s.control = nats.Access(), nats.Connect()
	for i := range stress.Pick(6, 16) {
		s.databases = append(s.databases, fmt.Sprint("db", i))
	}
	for i := range stress.Pick(3, 4) {
		access := nats.Access()
		s.processes = append(s.processes, &lapse{harness.ServeRemote(t, access.URL(i%cluster.Nodes), t.TempDir(), nil,
			"--replicas", "3", "--lease", lease.String(), "--database", strings.Join(s.databases, ",")), fmt.Sprint("lapse-", i), access})
	}
	s.even("at first", len(s.processes))
	for _, db := range s.databases {
		s.users = append(s.users, startSpreadUser(t, db, dialURL(t, s.clients.URL(0))))
	}
	victim := s.processes[len(s.processes)-1]
	victim.Kill()
	s.even("killed", len(s.processes)-1)
	victim.Restart()
	s.even("back", len(s.processes))
	if stress.Long() {
		victim.Freeze()
		s.even("frozen", len(s.processes)-1)
		victim.Signal(syscall.SIGCONT)
		s.even("goes on", len(s.processes))
		victim.access.Set(cluster.Stalled)
		s.even("cut off", len(s.processes)-1)
		victim.access.Set(cluster.Open)
		s.even("connected", len(s.processes))
	}
	s.move()
	s.even("after a move", len(s.processes))
	s.onDisk()
	victim.Stop()
	s.even("ended", len(s.processes)-1)
	for _, u := range s.users {
		u.stop()
	}
	for _, u := range s.users {
		u.verify(s.processes[0])
	}
}

// TestMoveNotHeard: where NATS does not let a process hear operators, as a configuration before
// 0.3.0 does not, it shares databases as ever, and says once what it lacks.
func TestMoveNotHeard(t *testing.T) {
	t.Parallel()
	url := startNATS(t, func(o *server.Options) {
		older := &server.SubjectPermission{Deny: []string{"$KV.*.process.*", "lapse.*.api.move"}}
		o.Users = []*server.User{{Username: "older", Password: "x", Permissions: &server.Permissions{Publish: older, Subscribe: older}}, {Username: "now", Password: "x"}}
	})
	as := func(user string) string { return strings.Replace(url, "://", "://"+user+":x@", 1) }
	start := func(user string) *harness.Server {
		return harness.ServeRemote(t, as(user), t.TempDir(), nil, "--database", "a,b", "--copies", "1", "--lease", "5s")
	}
	older := start("older")
	nc := harness.Dial(t, as("now"))
	use(t, nc, "1", "a", "b")
	now := start("now")
	eventually(t, "each writes one database", func() bool {
		writers := map[string]bool{}
		for _, db := range []string{"a", "b"} {
			var st status
			if a, err := request(nc, db, "status", "", time.Second); err == nil && json.Unmarshal(a.body, &st) == nil {
				for _, p := range st.Processes {
					writers[p.ID] = writers[p.ID] || p.Role == "writer"
				}
			}
		}
		return len(writers) == 2 && !slices.Contains(slices.Collect(maps.Values(writers)), false)
	})
	use(t, nc, "2", "a", "b")
	older.Stop()
	if n := strings.Count(older.Stderr(), "level=WARN"); n != 1 || !strings.Contains(older.Stderr(), "subscribe to lapse.<db>.api.move") {
		t.Errorf("%d warnings:\n%s", n, older.Stderr())
	}
	for _, db := range []string{"a", "b"} { // until the other one writes
		eventually(t, "a writer of "+db, func() bool {
			a, err := request(nc, db, "collection.create.c", "", time.Second)
			return err == nil && a.code == 409
		})
	}
	use(t, nc, "3", "a", "b")
	isWhole(t, now, "a", "1", "2", "3")
	isWhole(t, now, "b", "1", "2", "3")
}

// even waits until the databases are spread over so many processes, with two copies each.
func (s *spreadScene) even(when string, processes int) {
	s.t.Helper()
	began, last := time.Now(), ""
	most := (len(s.databases) + processes - 1) / processes
	for ; time.Since(began) < patience; time.Sleep(100 * time.Millisecond) {
		writes, copies := map[string]int{}, map[int]int{}
		for _, db := range s.databases {
			a, err := request(s.control, db, "status", "", 2*time.Second)
			var st status
			if err == nil {
				err = json.Unmarshal(a.body, &st)
			}
			if err != nil || a.code != 200 {
				writes["nobody"] = len(s.databases)
				continue
			}
			n := 0
			for _, p := range st.Processes {
				if p.Role == "writer" {
					writes[p.ID]++
				}
				if p.Role != "none" {
					n++
				}
			}
			copies[n]++
		}
		last = fmt.Sprint(writes, copies)
		if len(writes) == processes && copies[2] == len(s.databases) && slices.Max(slices.Collect(maps.Values(writes))) <= most {
			s.t.Logf("%s: even after %s", when, time.Since(began).Round(100*time.Millisecond))
			return
		}
	}
	s.t.Fatalf("%s: not even within %s: %s", when, patience, last)
}

// onDisk waits until two processes have a projection of each database.
func (s *spreadScene) onDisk() {
	s.t.Helper()
	eventually(s.t, "two projections of each database", func() bool {
		n := 0
		for _, p := range s.processes {
			for _, db := range s.databases {
				if _, err := os.Stat(filepath.Join(p.Dir, "projection", db)); err == nil {
					n++
				}
			}
		}
		return n == 2*len(s.databases)
	})
}

// move moves a database by command to its copy, and refuses other moves.
func (s *spreadScene) move() {
	s.t.Helper()
	db := s.databases[0]
	a := mustAskOf(s.t, s.control, 200, db, "status", "")
	var st status
	check(s.t, json.Unmarshal(a.body, &st))
	ids := map[string]string{}
	for _, p := range st.Processes {
		ids[p.Role] = p.ID
	}
	run := func(args ...string) harness.Result {
		return harness.Run(s.t, nil, append([]string{"move", "--server", s.clients.URL(0)}, args...)...)
	}
	if out := run(db, ids["copy"]).OK(); !strings.Contains(out, `"from":"`+ids["writer"]+`","to":"`+ids["copy"]+`"`) {
		s.t.Errorf("it prints %s, want a move to %s", out, ids["copy"])
	}
	eventually(s.t, "a move to where it is", func() bool { // a busy machine may have moved it back
		return strings.Contains(run(db, ids["copy"]).OK(), `"from":"`+ids["copy"]+`","to":"`+ids["copy"]+`"`)
	})
	refusal(s.t, run(db, "nobody"), "process nobody is not running")
	refusal(s.t, run("unknown"), "no process serves database")
	if ids["none"] != "" {
		refusal(s.t, run(db, ids["none"]), "has no copy")
	}
}

// spreadUser writes and reads one database.
type spreadUser struct {
	t       *testing.T
	db      string
	lapse   *client.Client
	cancel  context.CancelFunc
	running sync.WaitGroup
	acked   map[uint64]int // by version: the number in the document
}

// spreadDocument is a document of a spreadUser: each version of it expires soon unless
// another one replaces it.
type spreadDocument struct {
	N int `json:"n"`
}

func startSpreadUser(t *testing.T, db string, nc *nats.Conn) *spreadUser {
	t.Helper()
	lapse, err := client.New(nc, client.WithDatabase(db), client.WithTimeout(5*time.Second))
	check(t, err)
	u := &spreadUser{t: t, db: db, lapse: lapse, acked: make(map[uint64]int)}
	eventually(t, "collection of "+db, func() bool {
		a, err := request(nc, db, "collection.create.c", `{"defaultTtl":1}`, 5*time.Second)
		return err == nil && (a.code == 201 || a.code == 409)
	})
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel = cancel
	u.running.Go(func() { u.write(ctx, nc) })
	return u
}

// write upserts documents and reads them back; a request without an answer may have been
// applied, and is sent again.
func (u *spreadUser) write(ctx context.Context, nc *nats.Conn) {
	for n := 0; ctx.Err() == nil; n++ {
		tail := fmt.Sprintf("c.d%d", n%20)
		a, err := request(nc, u.db, "document.upsert."+tail, fmt.Sprintf(`{"n":%d}`, n), time.Second, "Nats-Msg-Id", fmt.Sprint("w", n))
		for ; (err != nil || a.code >= 500) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			a, err = request(nc, u.db, "document.upsert."+tail, fmt.Sprintf(`{"n":%d}`, n), time.Second, "Nats-Msg-Id", fmt.Sprint("w", n))
		}
		if ctx.Err() != nil {
			return
		}
		if a.code != 200 && a.code != 201 {
			u.t.Errorf("%s: upsert %d: %d %s", u.db, n, a.code, a.body)
			return
		}
		var made struct {
			ETag string `json:"_etag"` // of a repeat, the sequence is that of its answer
		}
		version, bad := uint64(0), json.Unmarshal(a.body, &made)
		if bad == nil {
			version, bad = strconv.ParseUint(made.ETag, 10, 64)
		}
		if bad != nil {
			u.t.Errorf("%s: upsert %d: %s", u.db, n, a.body)
			return
		}
		u.acked[version] = n
		r, err := request(nc, u.db, "document.get."+tail, "", time.Second, "Lapse-Min-Seq", fmt.Sprint(a.seq))
		var got spreadDocument
		if err == nil && r.code == 200 && (json.Unmarshal(r.body, &got) != nil || got.N != n) {
			u.t.Errorf("%s: after %d it reads %s", u.db, n, r.body)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (u *spreadUser) stop() {
	u.cancel()
	u.running.Wait()
}

// verify checks the log and the states of the database.
func (u *spreadUser) verify(p *lapse) {
	u.t.Helper()
	eventually(u.t, "all documents of "+u.db+" expire", func() bool {
		st, err := u.lapse.Status(u.t.Context())
		return err == nil && st.Documents == 0 && st.LogEnd == st.Seq
	})
	p.Run("audit", "--database", u.db).OK()
	log := p.Run("export", "--database", u.db).OK()
	end, events := uint64(0), make(map[uint64]string)
	for _, line := range harness.Lines(log) {
		var e struct {
			Seq  uint64
			Type string
			Body spreadDocument
		}
		check(u.t, json.Unmarshal([]byte(line), &e))
		events[e.Seq], end = fmt.Sprint(e.Type, " ", e.Body.N), e.Seq
	}
	for seq, n := range u.acked {
		if e := events[seq]; e != fmt.Sprint("DocumentCreated ", n) && e != fmt.Sprint("DocumentReplaced ", n) {
			u.t.Errorf("%s: %d was acknowledged as %d, which is %q in the log", u.db, n, seq, e)
		}
	}
	if len(u.acked) == 0 {
		u.t.Errorf("%s: nothing was acknowledged", u.db)
	}
	digest := strings.TrimSpace(harness.Run(u.t, strings.NewReader(log), "replay", "-").OK())
	for range 10 { // of any copy
		var st client.Status
		var err error
		eventually(u.t, "the log of "+u.db+" answers on a busy machine", func() bool {
			st, err = u.lapse.Status(u.t.Context())
			return !errors.Is(err, client.ErrUnavailable)
		})
		if err != nil || st.Digest != digest || st.Seq < end {
			u.t.Errorf("%s: %v, digest %s at %d, want %s", u.db, err, st.Digest, st.Seq, digest)
		}
	}
}
