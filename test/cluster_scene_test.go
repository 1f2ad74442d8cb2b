package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/cluster"
	"github.com/lapsedb/lapse/test/harness"
)

// lease is the lease TTL of the processors of a cluster.
const lease = 2 * time.Second

// scene is a database on a NATS cluster.
type scene struct {
	t       *testing.T
	random  *rand.Rand
	logs    string // directory
	nats    *cluster.Cluster
	control *nats.Conn // no fault affects it
	js      jetstream.JetStream

	processors []*lapse
	clients    *cluster.Access
	writes     *beats
	reads      *beats
}

// lapse is one lapse serve of a scene.
type lapse struct {
	*harness.Server
	name   string
	access *cluster.Access
}

// startScene starts a NATS cluster and that many processors. It keeps their logs if the
// test fails.
func startScene(t *testing.T, random *rand.Rand, processors int) *scene {
	t.Helper()
	logs, err := os.MkdirTemp("", "lapse-cluster-")
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs of all processes are in %s", logs)
		} else if err := os.RemoveAll(logs); err != nil {
			t.Error(err)
		}
	})
	s := &scene{t: t, random: random, logs: logs, nats: cluster.Start(t, logs, cluster.Options{})}
	s.control, s.clients = s.nats.Connect(), s.nats.Access()
	if s.js, err = jetstream.New(s.control); err != nil {
		t.Fatal(err)
	}
	for i := range processors {
		s.processors = append(s.processors, s.start(fmt.Sprint("lapse-", i), i))
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.dump()
		}
	})
	s.waitRoles()
	s.create("collection.create.beat", `{"defaultTtl":-1}`)
	made := s.create("document.create.beat.read", "{}")
	s.writes = startBeats(t, "writes", s.clients, made, func(node, n int) (string, string) {
		return fmt.Sprintf("document.upsert.beat.write%d", node), fmt.Sprintf(`{"n":%d}`, n)
	})
	s.reads = startBeats(t, "reads", s.clients, made, func(int, int) (string, string) { return "document.get.beat.read", "" })
	return s
}

// create retries a mutation until it succeeds, since on a busy machine the lease may
// change hands, and returns its sequence.
func (s *scene) create(tail, body string) (seq uint64) {
	s.t.Helper()
	eventually(s.t, tail, func() bool {
		a, err := tryAskWith(s.control, tail, body, 5*time.Second, "Nats-Msg-Id", tail)
		seq = a.seq
		return err == nil && a.code == 201
	})
	return seq
}

// dump makes every processor log its goroutines, and end.
func (s *scene) dump() {
	for _, p := range s.processors {
		process, err := os.FindProcess(p.PID())
		if err != nil || process.Signal(syscall.SIGQUIT) != nil {
			continue
		}
		select {
		case <-p.Ended():
		case <-time.After(10 * time.Second):
		}
	}
}

// start starts a processor that prefers a node.
func (s *scene) start(name string, node int, args ...string) *lapse {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(s.t, err)
	s.t.Cleanup(func() { log.Close() })
	access := s.nats.Access()
	args = append([]string{"--replicas", "3", "--lease", lease.String()}, args...)
	return &lapse{harness.ServeRemote(s.t, access.URL(node%cluster.Nodes), s.t.TempDir(), log, args...), name, access}
}

// note logs a line to the test's output, with the same clock as the logs.
func (s *scene) note(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("%s "+format, append([]any{time.Now().UTC().Format("15:04:05.000")}, args...)...)
}

// service is the micro service info of a processor.
type service struct {
	ID       string            `json:"id"`
	Metadata map[string]string `json:"metadata"`
}

// services returns the info of all processors that answer.
func (s *scene) services() (all []service) {
	s.t.Helper()
	inbox := s.control.NewInbox()
	answers, err := s.control.SubscribeSync(inbox)
	check(s.t, err)
	defer func() { _ = answers.Unsubscribe() }()
	check(s.t, s.control.PublishRequest("$SRV.INFO.lapse", inbox, nil))
	for len(all) < len(s.processors) {
		m, err := answers.NextMsg(500 * time.Millisecond)
		if err != nil || len(m.Data) == 0 { // no more answers, or no responders
			break
		}
		var info service
		if err := json.Unmarshal(m.Data, &info); err != nil {
			s.t.Fatalf("%s: %v", m.Data, err)
		}
		all = append(all, info)
	}
	return all
}

// waitRoles waits until all processors answer, one as the writer, the others as standbys.
func (s *scene) waitRoles() {
	s.t.Helper()
	var all []service
	defer func() {
		if s.t.Failed() {
			s.note("the services are %v", all)
		}
	}()
	eventually(s.t, "one writer, all others standbys", func() bool {
		all = s.services()
		roles := make(map[string]int)
		for _, info := range all {
			roles[info.Metadata["role"]]++
		}
		return len(all) == len(s.processors) && roles["writer"] == 1 && roles["standby"] == len(s.processors)-1
	})
}

// settle waits until every processor has the same state, with nothing pending, and
// returns it.
func (s *scene) settle() (settled status) {
	s.t.Helper()
	failures := make(map[string]int)
	defer func() {
		if s.t.Failed() {
			s.note("status came out with %v", failures)
		}
	}()
	eventually(s.t, "all processors have the same state, in which nothing is overdue", func() bool {
		var why string
		settled, why = s.oneState()
		failures[why]++
		return why == ""
	})
	return settled
}

// oneState asks for status often enough that each processor has answered, as a random one
// answers each time, and returns how their answers differ.
func (s *scene) oneState() (first status, why string) {
	s.t.Helper()
	for i := range 60 {
		began := time.Now()
		a, err := tryAskFor(s.control, "status", "", 5*time.Second)
		if err != nil || a.code != 200 {
			return first, fmt.Sprintf("%d %s %v after %s", a.code, a.body, err, time.Since(began).Round(time.Second))
		}
		var of status
		check(s.t, json.Unmarshal(a.body, &of))
		if i == 0 {
			first = of
		}
		switch {
		case of.Seq != first.Seq || of.Digest != first.Digest:
			return first, fmt.Sprintf("%s has %d %s, and another %d %s", of.Role, of.Seq, of.Digest, first.Seq, first.Digest)
		case of.PendingExpiry+of.Overdue+of.MutationsBehind > 0 || of.Clock.Suspect:
			return first, fmt.Sprintf("%s is not done: %s", of.Role, a.body)
		}
	}
	return first, ""
}

// node returns the processor's name for itself.
func (p *lapse) node(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.Dir, "node"))
	check(t, err)
	return strings.TrimSpace(string(text))
}

// writer waits until there is exactly one writer, and returns it.
func (s *scene) writer() (w *lapse) {
	s.t.Helper()
	eventually(s.t, "a writer", func() bool {
		writers := 0
		for _, info := range s.services() {
			for _, p := range s.processors {
				if info.Metadata["role"] == "writer" && info.Metadata["node"] == p.node(s.t) {
					writers++
					w = p
				}
			}
		}
		return writers == 1
	})
	s.note("%s writes", w.name)
	return w
}

// standby returns a random processor that is not the writer.
func (s *scene) standby() *lapse {
	s.t.Helper()
	w := s.writer()
	for {
		if p := s.processors[s.random.IntN(len(s.processors))]; p != w {
			return p
		}
	}
}

// streams returns the names of the database's streams.
func (s *scene) streams() (names []string) {
	s.t.Helper()
	eventually(s.t, "a list of the streams", func() bool { // by the JetStream leader, which may be new
		ctx, cancel := context.WithTimeout(s.t.Context(), hasty)
		defer cancel()
		names = nil
		list := s.js.StreamNames(ctx)
		for name := range list.Name() {
			if strings.HasPrefix(name, "LAPSE_main") || strings.HasPrefix(name, "KV_LAPSE_main") {
				names = append(names, name)
			}
		}
		return list.Err() == nil && len(names) > 0
	})
	return names
}
