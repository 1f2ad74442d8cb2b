package deploy_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/rights"
)

// TestPermissions: each user may use exactly the subjects that package rights lists for it.
// One node of three has no JetStream, so permitted requests have no effect.
func TestPermissions(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	for _, user := range []string{"processor", "bulk", "gate-log", "operator", "service", "gate-clients", "client", "producer", "auditor"} {
		rights.Check(t, user, func(opts ...nats.Option) (*nats.Conn, error) { return c.connect(t, user, opts...), nil })
	}
}

// TestInboxIsolation: the client's _INBOX.> does not receive replies to users with
// inboxes of their own.
func TestInboxIsolation(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	client, service := c.connect(t, "client"), c.connect(t, "service")
	seen, err := client.SubscribeSync("_INBOX.>")
	check(t, err)
	check(t, client.Flush())
	for _, inbox := range []string{"_INBOX.producer.x", "_INBOX.auditor.x", "_INBOX.last"} {
		check(t, service.Publish(inbox, nil))
	}
	if m, err := seen.NextMsg(patience); err != nil || m.Subject != "_INBOX.last" {
		t.Errorf("seen: %+v, %v", m, err)
	}
	if m, err := seen.NextMsg(10 * time.Millisecond); err == nil {
		t.Errorf("seen: %s", m.Subject)
	}
}
