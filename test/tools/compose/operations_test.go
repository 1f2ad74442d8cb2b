package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/child"
)

// TestRollingRestart: the commands and environments of the compose file, run as plain
// processes, form a cluster of three with two lapse processes, which are healthy. A restart
// of all of them, one after the other in the order of docs/operations.md, loses no
// acknowledged write of a client.
func TestRollingRestart(t *testing.T) {
	m := newMachine(t)
	nodes, lapses := m.startNodes(t), m.startLapses(t)
	for _, p := range lapses {
		m.healthy(t, p)
	}
	lapse := m.client(t)
	do(t, lapse, "collection.create", "", `{"defaultTtl":3600}`)

	writing, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	acknowledged, seq, longest := 0, uint64(0), time.Duration(0)
	work.Go(func() {
		last := time.Now()
		for n := 1; writing.Err() == nil; n++ {
			reply, err := lapse.Do(t.Context(), "document.upsert", "orders", "a", fmt.Appendf(nil, `{"n":%d}`, n))
			if err != nil {
				time.Sleep(20 * time.Millisecond) // and tries again
				continue
			}
			acknowledged, seq, longest, last = n, reply.Seq, max(longest, time.Since(last)), time.Now()
		}
	})

	w := writer(lapses)
	for _, p := range lapses {
		if p != w {
			m.restart(t, p, syscall.SIGTERM).ready(t)
		}
	}
	m.restart(t, w, syscall.SIGTERM).ready(t)
	for _, p := range nodes {
		m.nodeHealthy(t, m.restart(t, p, syscall.SIGUSR2))
	}
	for _, p := range nodes {
		if said := p.Output(); strings.Contains(said, "Violation") {
			t.Errorf("%s: %s", p.name, said)
		}
	}
	stop()
	work.Wait()
	t.Logf("%d writes; the longest that none was done is %s", acknowledged, longest)
	reply, err := lapse.Do(t.Context(), "document.get", "orders", "a", nil, client.MinSeq(seq)) // a standby may answer
	var document struct{ N int }
	if err == nil {
		err = json.Unmarshal(reply.Body, &document)
	}
	if err != nil || document.N < acknowledged {
		t.Errorf("%+v, %v; %d was acknowledged", document, err, acknowledged)
	}
	m.run(t, "audit")
}

// restart stops a process with a signal, as an operator does, and starts it again.
func (m *machine) restart(t *testing.T, p *process, signal os.Signal) *process {
	t.Helper()
	if code := p.End(signal); code != 0 {
		t.Errorf("%s ended with %d", p.name, code)
	}
	return m.start(t, p.name)
}

// do repeats a request until it succeeds.
func do(t *testing.T, lapse *client.Client, op, id, body string) {
	t.Helper()
	eventually(t, op+" "+id+" is done", func() bool {
		_, err := lapse.Do(t.Context(), op, "orders", id, []byte(body))
		return err == nil
	})
}

// run runs a client command as the auditor, and fails the test if it fails.
func (m *machine) run(t *testing.T, args ...string) string {
	t.Helper()
	home := t.TempDir()
	dir := filepath.Join(home, "nats", "context")
	text, err := json.Marshal(map[string]string{"url": m.urls(), "nkey": filepath.Join(secrets, "nkeys", "auditor.nk"),
		"ca": filepath.Join(secrets, "ca.pem"), "inbox_prefix": "_INBOX.auditor"})
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "auditor.json"), text, 0o600)
	}
	check(t, err)
	cmd := child.Command(t, m.lapse, append(args, "--context", "auditor", "--timeout", "20s")...)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("lapse %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
