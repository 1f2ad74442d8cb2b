package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/test/harness"
)

// serveArgs returns the arguments of a lapse process with the users of nats.conf.
func serveArgs(urls []string, more ...string) []string {
	return append(append(connectionArgs(urls), "--replicas", "3", "--lease", "10s"), more...)
}

// connectionArgs returns the arguments with which lapse connects as these users.
func connectionArgs(urls []string) []string {
	args := []string{"--nats-url", strings.Join(urls, ","), "--tls-ca", filepath.Join(secrets, "ca.pem")}
	for connection, user := range map[string]string{"log": "processor", "bulk": "bulk", "service": "service", "gate-log": "gate-log", "gate-clients": "gate-clients"} {
		args = append(args, "--nkey", connection+"="+filepath.Join(secrets, "nkeys", user+".nk"))
	}
	return args
}

// contexts writes NATS contexts for the client commands of a test.
func contexts(t *testing.T, urls []string) {
	t.Helper()
	for _, user := range []string{"client", "producer", "auditor"} {
		text, err := json.Marshal(map[string]string{
			"url": strings.Join(urls, ","), "nkey": filepath.Join(secrets, "nkeys", user+".nk"),
			"ca": filepath.Join(secrets, "ca.pem"), "inbox_prefix": inboxes[user],
		})
		check(t, err)
		check(t, os.WriteFile(contextOf(t, user), text, 0o600))
	}
}

// contextOf returns the file of a user's context in a test.
func contextOf(t *testing.T, user string) string {
	test, _, _ := strings.Cut(t.Name(), "/")
	return filepath.Join(secrets, user+"-"+test+".json")
}

// as runs a command as a user.
func as(t *testing.T, user string, args ...string) harness.Result {
	t.Helper()
	return harness.Run(t, nil, append(args, "--context", contextOf(t, user), "--timeout", "20s")...)
}

// done runs a command as a user until it succeeds: on a busy machine, lapse may
// change its writer at any time.
func done(t *testing.T, user string, args ...string) (stdout string) {
	t.Helper()
	eventually(t, fmt.Sprint(user, " does ", args), func() bool {
		r := as(t, user, args...)
		stdout = r.Stdout
		return r.Code == 0
	})
	return stdout
}

// warns returns a function that reports whether a log line is a warning. It ignores those
// due to the harness and to a busy machine, where NATS may briefly have no leader, and all
// if NATS left pings unanswered ("stale"): the process then connects to another server.
func warns(s *harness.Server) func(line string) bool {
	stale := strings.Contains(s.Stderr(), "nats: stale connection")
	return func(line string) bool {
		return !stale && strings.Contains(line, "level=WARN") && !strings.Contains(line, "--listen is ignored") &&
			!strings.Contains(line, "slow operation") && !strings.Contains(line, "unreachable")
	}
}

// writes reports whether the last role that a process logged is the writer.
func writes(s *harness.Server) bool {
	text := s.Stderr()
	writer := max(strings.LastIndex(text, "as the writer"), strings.LastIndex(text, "role=writer"))
	return writer > max(strings.LastIndex(text, "as the standby"), strings.LastIndex(text, "role=standby"))
}

// TestServe: with their rights, two lapse processes can do all that they do, and so can
// their clients. NATS refuses nothing, and every right is used.
func TestServe(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	tap := &tap{}
	urls := tap.open(t, c)
	contexts(t, urls)
	args := serveArgs(urls, "--retain", "1s", "--snapshot-every", "1s")
	one, two := harness.Serve(t, args...), harness.Serve(t, args...)
	processes := []*harness.Server{one, two}
	writer := func() (writer, standby *harness.Server) {
		t.Helper()
		eventually(t, "one writes and the other stands by", func() bool { return writes(one) != writes(two) })
		if writes(one) {
			return one, two
		}
		return two, one
	}

	// Connections that begin at different nodes move together without a warning.
	for _, s := range processes {
		refuse(t, s, warns(s))
	}

	// Requests, mutations, reads.
	eventually(t, "there is a collection", func() bool {
		as(t, "client", "collection", "create", "orders", "--default-ttl", "1h", "--include-path", "/total")
		return as(t, "client", "collection", "get", "orders").Code == 0
	})
	done(t, "client", "document", "upsert", "orders", "a", `{"total":1}`)

	// An operator moves the database, a client does not.
	if r := as(t, "client", "move", "main"); r.Code != 1 || !strings.Contains(r.Stderr, "clients may not move databases") {
		t.Errorf("a client moves the database: %+v", r)
	}
	eventually(t, "the database moves", func() bool {
		before, _ := writer()
		r := harness.Run(t, nil, "move", "main", "--server", strings.Join(urls, ","), "--tls-ca", filepath.Join(secrets, "ca.pem"),
			"--nkey", filepath.Join(secrets, "nkeys", "operator.nk"), "--inbox-prefix", "_OPERATOR")
		after, _ := writer()
		return r.Code == 0 && before != after
	})
	producer := c.through(t, urls, "producer")
	js, err := jetstream.New(producer)
	check(t, err)
	for n := range 20 {
		repeat(t, func(ctx context.Context) error {
			_, err := js.Publish(ctx, db.Mutations()+"document.upsert.orders.m"+fmt.Sprint(n), fmt.Appendf(nil, `{"total":%d,"ttl":1}`, n))
			return err
		})
	}
	eventually(t, "the mutations are folded", func() bool {
		return strings.Contains(as(t, "auditor", "history", "orders", "m19").Stdout, "DocumentCreated")
	})
	for _, user := range []string{"client", "auditor"} {
		done(t, user, "document", "get", "orders", "a")
		done(t, user, "query", "orders", "--where", "doc.total >= 0")
		done(t, user, "collection", "list")
		done(t, user, "collection", "get", "orders")
		done(t, user, "status")
		done(t, user, "forecast", "orders")
		done(t, user, "export")
		done(t, user, "audit")
	}
	readFeed(t, c, urls)

	args[slices.Index(args, "--lease")+1] = "2s"
	takeOvers(t, processes, writer, args)
	for _, logged := range []string{"log trimmed", "snapshot removed"} {
		eventually(t, logged, func() bool { return strings.Contains(one.Stderr()+two.Stderr(), logged) })
	}
	// A process with an empty store directory begins with a snapshot.
	fresh := harness.Serve(t, args...)
	if !strings.Contains(fresh.Stderr(), "restored from a snapshot") {
		t.Errorf("it began with the log:\n%s", fresh.Stderr())
	}
	for _, s := range append(processes, fresh) {
		s.Stop()
		refuse(t, s, violates)
	}
	for _, line := range c.violations() {
		t.Error(line)
	}
	allUsed(t, tap)
}

// takeOvers restarts processes with args, and has each become the writer, after a kill and after
// a hand-over. A busy machine loses short leases, too.
func takeOvers(t *testing.T, processes []*harness.Server, writer func() (writer, standby *harness.Server), args []string) {
	t.Helper()
	for _, s := range processes {
		s.Stop()
		refuse(t, s, violates)
		s.With(args...)
		s.Restart()
	}
	for n, end := range []func(*harness.Server){(*harness.Server).Kill, func(s *harness.Server) { s.Stop() }, (*harness.Server).Kill} {
		ended, next := writer()
		end(ended)
		eventually(t, "the other one writes", func() bool { return writes(next) })
		done(t, "client", "document", "upsert", "orders", fmt.Sprint("after", n), `{"ttl":-1}`)
		refuse(t, ended, violates)
		ended.Restart()
	}
}

// violates reports whether a log line is about a permission violation.
func violates(line string) bool { return strings.Contains(strings.ToLower(line), "violation") }

// refuse fails the test for each log line of a process that matches.
func refuse(t *testing.T, s *harness.Server, such func(line string) bool) {
	t.Helper()
	for _, line := range harness.Lines(s.Stderr()) {
		if such(line) {
			t.Error(line)
		}
	}
}

// request repeats a request until there is a reply, other than that JetStream is
// temporarily unavailable.
func request(t *testing.T, nc *nats.Conn, subject, body string) (m *nats.Msg) {
	t.Helper()
	repeat(t, func(ctx context.Context) (err error) {
		m, err = nc.RequestWithContext(ctx, subject, []byte(body))
		if err == nil && strings.Contains(string(m.Data), fmt.Sprintf(`"err_code":%d`, server.JSClusterNotAvailErr)) {
			err = errors.New(string(m.Data))
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", subject, err)
		}
		return err
	})
	return m
}

// through connects by the taps at urls.
func (c *cluster) through(t *testing.T, urls []string, user string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(strings.Join(urls, ","), login(t, user)...)
	check(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// readFeed reads the feed by old and new APIs, and sends the requests of tools. Package
// embedded tests what is replied.
func readFeed(t *testing.T, c *cluster, urls []string) {
	t.Helper()
	nc := c.through(t, urls, "client")
	lapse, err := client.New(nc)
	check(t, err)
	// Events are trimmed soon after they are read, so keep writing.
	writing, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stop()
	writer.Go(func() {
		for writing.Err() == nil {
			_, _ = lapse.Do(writing, "document.upsert", "orders", "more", []byte(`{}`)) // an error does not matter: more follow
			select {
			case <-writing.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	soon, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 2 {
		for _, err := range lapse.Changes(soon, client.FromStart(), client.Durable("reader")) {
			check(t, err)
			break
		}
	}
	js, err := jetstream.New(nc)
	check(t, err)
	repeat(t, func(ctx context.Context) error {
		_, err := js.Publish(ctx, db.Mutations()+"document.upsert.orders.mine", []byte(`{}`))
		return err
	})
	// The requests of tools, as far as they are permitted. They need not succeed.
	// Readers have pulled already.
	bodies := map[string]string{
		"$JS.API.CONSUMER.CREATE." + log:                     `{"stream_name":"LAPSE_main","config":{"ack_policy":"none"}}`,
		"$JS.API.CONSUMER.CREATE." + log + ".reader":         `{"stream_name":"LAPSE_main","config":{"name":"reader"}}`,
		"$JS.API.CONSUMER.DURABLE.CREATE." + log + ".reader": `{"stream_name":"LAPSE_main","config":{"durable_name":"reader"}}`,
	}
	for user, role := range map[string]gate.Role{"client": gate.GateLog, "auditor": gate.Auditor} {
		by := c.through(t, urls, user)
		for _, right := range role.Subjects(db) {
			subject := strings.NewReplacer(".DELETE."+log+".*", ".DELETE."+log+".none", "*", "reader", ">", "reader").Replace(right)
			if strings.HasPrefix(subject, "$JS.API.") && !strings.Contains(subject, ".MSG.NEXT.") && !slices.Contains(unused, right) {
				request(t, by, subject, bodies[subject])
			}
		}
	}
	for _, subject := range []string{"$JS.API.INFO", "$SRV.PING.lapse", "$KV.bucket.key", "$O.bucket.C.x", db.Events() + "orders.DocumentCreated"} {
		request(t, nc, subject, "")
	}
	// The oldest API, as in client libraries of other languages.
	legacy, err := nc.JetStream(nats.UseLegacyDurableConsumers())
	check(t, err)
	for _, opts := range [][]nats.SubOpt{{}, {nats.Durable("old")}, {nats.EnableFlowControl(), nats.IdleHeartbeat(100e6)}} {
		var sub *nats.Subscription
		repeat(t, func(context.Context) (err error) {
			sub, err = legacy.SubscribeSync(db.Events()+">", append(opts, nats.BindStream(log))...)
			return err
		})
		if _, err := sub.NextMsg(patience); err != nil {
			t.Fatal(err)
		}
		check(t, sub.Unsubscribe())
	}
}

// unused lists rights for cases that TestServe does not cause.
var unused = []string{
	"$JS.FC.*.>",             // TestLargeSnapshot
	"$JS.FC.LAPSE_main.>",    // a slow reader
	"$JS.API.STREAM.PURGE.*", // a snapshot that fails half-way
	"$JS.API.CONSUMER.CREATE.KV_LAPSE_main_LEASE.>", "$JS.API.CONSUMER.DELETE.KV_LAPSE_main_LEASE.>", // earlier versions, which may start during an upgrade
	"$JS.API.DIRECT.GET.LAPSE_main", "$JS.API.DIRECT.GET.LAPSE_main.>", // direct gets, if an operator permits them
}

// allUsed checks that each user uses all its rights.
func allUsed(t *testing.T, tap *tap) {
	t.Helper()
	const anyPort = "127.0.0.1:-1"
	o, err := nodeOptions(natsConf, secrets, "nats-1", anyPort, anyPort, t.TempDir(), harness.FreeAddrs(t, 3))
	check(t, err)
	for _, user := range o.Nkeys {
		name := userOf(user.Nkey)
		if name == "operator" || user.Permissions == nil {
			continue // does not take part, or has no list of permissions
		}
		for _, right := range user.Permissions.Publish.Allow {
			if !slices.Contains(unused, right) && !tap.used(tap.published, name, right) {
				t.Errorf("%s never publishes to %s", name, right)
			}
		}
		for _, right := range user.Permissions.Subscribe.Allow {
			if !tap.used(tap.listened, name, right) {
				t.Errorf("%s never subscribes to %s", name, right)
			}
		}
	}
}
