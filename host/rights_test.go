package host

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestReadyNeedsRights: Run ends before it is ready, with the subject and the connection, if
// NATS refuses a user what its connection needs to serve anybody.
func TestReadyNeedsRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ connection, denied, refused string }{
		{ServiceConnection, `subscribe: { deny: "lapse.main.api.>" }`, `Subscription to "lapse.main.api.`},
		{ServiceConnection, `subscribe: { deny: "$SRV.>" }`, `Subscription to "$SRV.`},
		{BulkConnection, `publish: { deny: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.*" }`, `Publish to "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.`},
		{BulkConnection, `publish: { deny: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main_MUTATIONS.*" }`, `Publish to "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main_MUTATIONS.`},
		{BulkConnection, `publish: { deny: "$JS.API.CONSUMER.CREATE.LAPSE_main_MUTATIONS.>" }`, `Publish to "$JS.API.CONSUMER.CREATE.LAPSE_main_MUTATIONS.`},
	} {
		t.Run(c.connection+" "+c.denied, func(t *testing.T) {
			t.Parallel()
			options := harness.NATSOptions(t.TempDir())
			config := `authorization { users: [{ user: all, password: x }, { user: less, password: x, permissions { DENIED } }] }`
			check(t, options.ProcessConfigString(strings.Replace(config, "DENIED", c.denied, 1)))
			ns := harness.StartNATS(t, options)
			o := Options{StoreDir: t.TempDir(), Databases: []schema.DatabaseName{"main"}, Processor: processor.Options{Lease: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)}}
			o.External = &External{Connect: func(name string, with ...nats.Option) (*nats.Conn, error) {
				user := "all"
				if name == c.connection {
					user = "less"
				}
				return nats.Connect(ns.ClientURL(), append(with, nats.UserInfo(user, "x"))...)
			}}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			o.Events = func(e Event) {
				if _, ok := e.(Ready); ok {
					t.Error("it is ready")
					end()
				}
			}
			err := Run(ctx, o)
			if err == nil || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), `"lapse main `+c.connection+`"`) || strings.Contains(err.Error(), "\n") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}
