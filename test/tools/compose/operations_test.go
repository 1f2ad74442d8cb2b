package compose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/jsm.go"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/child"
)

// streams are the streams that a backup must include.
var streams = []string{"LAPSE_main", "LAPSE_main_MUTATIONS"}

// TestBackup: streams backed up with the means of NATS alone, while lapse serves, can be
// restored after the loss of all nodes and their disks. lapse continues from the backup
// and judges no mutation twice.
func TestBackup(t *testing.T) {
	m := newMachine(t)
	nodes, lapses := m.startNodes(t), m.startLapses(t)
	lapse := m.client(t)
	do(t, lapse, "collection.create", "", `{"defaultTtl":3600}`)
	for n := range 20 {
		do(t, lapse, "document.upsert", fmt.Sprint("d", n), fmt.Sprintf(`{"n":%d}`, n))
	}
	do(t, lapse, "document.upsert", "short", `{"ttl":1}`)
	m.mutate(t, "document.upsert.orders.m", `{"n":1}`)
	m.mutate(t, "document.delete.orders.d19", "")
	eventually(t, "all is judged, and expired", func() bool {
		status, err := lapse.Status(t.Context())
		return err == nil && status.Documents == 20 && status.PendingExpiry+status.Overdue == 20 && status.MutationsBehind == 0 &&
			strings.Contains(m.run(t, "history", "orders", "short"), "DocumentExpired")
	})
	before := m.digest(t)

	backup := t.TempDir()
	operator := m.operator(t)
	for _, name := range streams {
		stream, err := operator.LoadStream(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.SnapshotToDirectory(t.Context(), filepath.Join(backup, name), jsm.SnapshotConsumers(), jsm.SnapshotHealthCheck()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}

	// Writes after the backup are lost.
	do(t, lapse, "document.upsert", "late", `{}`)
	m.mutate(t, "document.upsert.orders.later", `{}`)
	do(t, lapse, "document.upsert", "last", `{}`)
	for _, p := range lapses {
		p.End(syscall.SIGTERM) // flushes the projection, with the writes that are lost
	}
	for _, p := range nodes {
		p.End(os.Kill)
	}
	for _, name := range nodeNames {
		if err := os.RemoveAll(m.storeOf(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.startNodes(t)
	for _, name := range streams {
		eventually(t, name+" is restored", func() bool {
			_, _, err := operator.RestoreSnapshotFromDirectory(t.Context(), name, filepath.Join(backup, name))
			if err != nil {
				t.Log(err) // the nodes may have no leader yet
				if half, err := operator.LoadStream(name); err == nil {
					_ = half.Delete()
				}
			}
			return err == nil
		})
	}
	// lapse refuses a log that is older than its projection.
	for _, p := range lapses {
		if err := os.RemoveAll(m.projectionOf(t, p.name)); err != nil {
			t.Fatal(err)
		}
	}
	m.startLapses(t)
	if after := m.digest(t); after != before {
		t.Errorf("the digest is %s, was %s", after, before)
	}
	for _, id := range []string{"late", "later", "last"} {
		if _, err := lapse.Do(t.Context(), "document.get", "orders", id, nil); !errors.Is(err, client.ErrDocumentNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	do(t, lapse, "document.upsert", "d0", `{"n":100}`)
	m.mutate(t, "document.upsert.orders.m", `{"n":2}`)
	eventually(t, "mutations go on", func() bool { return strings.Contains(m.run(t, "document", "get", "orders", "m"), `"n":2`) })
	m.run(t, "audit")
}

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

// mutate publishes a mutation to the mutations stream.
func (m *machine) mutate(t *testing.T, tail, body string) {
	t.Helper()
	nc, err := nats.Connect(m.urls(), append(login(t, "producer"), nats.CustomInboxPrefix("_INBOX.producer"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, tail+" is taken", func() bool {
		_, err := js.Publish(t.Context(), "lapse.main.mutations."+tail, []byte(body))
		return err == nil
	})
}

// operator returns a manager of the streams, with the rights of the operator.
func (m *machine) operator(t *testing.T) *jsm.Manager {
	t.Helper()
	nc, err := nats.Connect(m.urls(), append(login(t, "operator"), nats.CustomInboxPrefix("_OPERATOR"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	manager, err := jsm.New(nc, jsm.WithTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

// storeOf returns the directory in which a node stores its streams.
func (m *machine) storeOf(t *testing.T, node string) string {
	t.Helper()
	return m.dirOf(t, node, *m.project.Services[node].Environment["NATS_STORE"])
}

// projectionOf returns the directory of a lapse process's projection.
func (m *machine) projectionOf(t *testing.T, lapse string) string {
	t.Helper()
	return m.dirOf(t, lapse, "/data/projection")
}

// dirOf returns the directory on this machine for a path of a service.
func (m *machine) dirOf(t *testing.T, name, path string) string {
	t.Helper()
	service := m.project.Services[name]
	service.Name = name
	dir := m.here(service, path)
	if !strings.HasPrefix(dir, m.data) {
		t.Fatalf("%s keeps %s in %s", name, path, dir)
	}
	return dir
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
	if err != nil {
		t.Fatal(err)
	}
	cmd := child.Command(t, m.lapse, append(args, "--context", "auditor", "--timeout", "20s")...)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("lapse %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (m *machine) digest(t *testing.T) string {
	t.Helper()
	var status struct{ Digest string }
	if err := json.Unmarshal([]byte(m.run(t, "status", "--json")), &status); err != nil || status.Digest == "" {
		t.Fatalf("%+v, %v", status, err)
	}
	return status.Digest
}
