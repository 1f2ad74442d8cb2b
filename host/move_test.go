package host

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestMoveRefused: where no other process can write a database, a request to move it is
// refused at once, with the reason.
func TestMoveRefused(t *testing.T) {
	t.Parallel()
	nc := harness.Dial(t, harness.StartNATS(t, harness.NATSOptions(t.TempDir())).ClientURL())
	elapsed := func() time.Duration { return 0 }
	s := &spreading{log: nc, node: "a", lease: 5 * time.Second, elapsed: elapsed}
	db := &hosted{name: "main", presence: lease.NewPresence(nc, lease.Config{Database: "main", TTL: s.lease, Node: s.node, Elapsed: elapsed})}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		left <- db.presence.Run(ctx, func() lease.Member { return lease.Member{Weight: 1, Role: schema.RoleWriter} })
	}()
	defer func() { leave(); <-left }()
	members := 0
	hears := func() {
		t.Helper()
		members++
		for end := time.Now().Add(time.Minute); len(db.presence.Members()) != members; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it hears of %d processes, not %d", len(db.presence.Members()), members)
			}
		}
	}
	joins := func(id string, weight int, role string) {
		t.Helper()
		if err := nc.Publish("$KV.LAPSE_main_LEASE.process."+id, fmt.Appendf(nil, `{"id":%q,"weight":%d,"role":%q}`, id, weight, role)); err != nil {
			t.Fatal(err)
		}
		hears()
	}
	refused := func(request, want string) {
		t.Helper()
		_, fault := s.moveAsked(t.Context(), db, []byte(request))
		if !errors.Is(fault, schema.ErrPreconditionFailed) || fault.Error() != want {
			t.Errorf("%s: %v, want %s", request, fault, want)
		}
	}
	hears()
	refused(``, "no other process is ready to write database main: there is none; see `lapse status`")
	joins("b", 0, schema.RoleCopy)
	joins("c", 0, schema.RoleNone)
	refused(``, "no other process is ready to write database main: process b has --weight 0: it only reads; see `lapse status`")
	refused(`{"to":"c"}`, "database main stays at a: process c has --weight 0: it only reads")
	joins("d", 1, schema.RoleNone)
	refused(`{"to":"d"}`, "database main stays at a: process d has no copy of it")
	refused(`{"to":"e"}`, "database main stays at a: process e is not there")
}
