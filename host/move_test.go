package host

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/spread"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestMoveRefused: where no other process can write a database, a request to move it is
// refused at once, with the reason.
func TestMoveRefused(t *testing.T) {
	t.Parallel()
	nc := harness.Dial(t, harness.StartNATS(t, harness.NATSOptions(t.TempDir())).ClientURL())
	process, err := peers.Join(t.Context(), nc, peers.Self{ID: "a", Weight: 1, Databases: []schema.DatabaseName{"main"}, Lease: 5 * time.Second, Events: func(observe.Event) {}})
	check(t, err)
	s := &spreading{log: nc, process: process, node: "a", lease: 5 * time.Second, elapsed: func() time.Duration { return 0 }}
	db := &hosted{name: "main"}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); process.Watch(ctx) }()
	defer func() { end(); <-ended }()
	members := 0
	hears := func() {
		t.Helper()
		members++
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := process.Await(ctx, func(all []peers.Member) bool { return len(all) == members }); err != nil {
			t.Fatalf("it hears of %d processes, not %d", len(process.Members()), members)
		}
	}
	joins := func(id string, weight int, of string) {
		t.Helper()
		reply := fmt.Appendf(nil, `{"id":%[1]q,"process":{"id":%[1]q,"weight":%[2]d,"databases":[{"database":"main",%[3]s}]}}`, id, weight, of)
		for _, subject := range []string{"$SRV.PING.lapse", "$SRV.PING.lapse." + id} {
			if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(reply) }); err != nil {
				t.Fatal(err)
			}
		}
		hears()
	}
	refused := func(request, want string) {
		t.Helper()
		_, fault := s.move(t.Context(), db, []byte(request))
		if !errors.Is(fault, schema.ErrPreconditionFailed) || fault.Error() != want {
			t.Errorf("%s: %v, want %s", request, fault, want)
		}
	}
	hears()
	refused(``, "no other process is ready to write database main: there is none; see `lapse status`")
	joins("b", 0, `"role":"copy"`)
	joins("c", 0, `"role":"none"`)
	refused(``, "no other process is ready to write database main: process b has --weight 0: it only reads; see `lapse status`")
	refused(`{"to":"c"}`, "database main stays at a: process c has --weight 0: it only reads")
	joins("d", 1, `"role":"none"`)
	refused(`{"to":"d"}`, "database main stays at a: process d has no copy of it")
	refused(`{"to":"e"}`, "database main stays at a: process e is not running")
	for _, subject := range []string{"$SRV.PING.lapse", "$SRV.PING.lapse.g"} {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
			_ = m.Respond([]byte(`{"id":"g","version":"0.3.0","metadata":{"database":"main","role":"standby","node":"old"}}`))
		}); err != nil {
			t.Fatal(err)
		}
	}
	hears()
	refused(`{"to":"old"}`, "database main stays at a: process old runs 0.3.0: upgrade it first")
	// With core NATS and without JetStream a process replies that it is behind.
	joins("f", 1, `"role":"copy","behindMs":1000`)
	refused(`{"to":"f"}`, "database main stays at a: process f is 1s or more behind the log")
	if spread.Covered(standings(process.Members(), "main"), []string{"b", "f"}) {
		t.Error("a process that JetStream does not answer counts as a copy")
	}
}
