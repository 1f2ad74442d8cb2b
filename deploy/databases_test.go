package deploy_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// subjectOfMain matches a quoted subject that names the database.
var subjectOfMain = regexp.MustCompile(`"[^"]*(LAPSE_|lapse\.)main[^"]*"`)

// withDatabase returns nats.conf for main and a second database, as its head says: each
// subject exists for both, as do the export and the import of the mutations.
func withDatabase(t *testing.T, second string) (path string) {
	t.Helper()
	text, err := os.ReadFile(natsConf)
	check(t, err)
	forSecond := strings.NewReplacer("LAPSE_main", "LAPSE_"+second, "lapse.main.", "lapse."+second+".").Replace
	var both []string
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "#"):
		case strings.Contains(line, "{ service:") && subjectOfMain.MatchString(line):
			line += forSecond(line)
		default:
			line = subjectOfMain.ReplaceAllStringFunc(line, func(subject string) string { return subject + ", " + forSecond(subject) })
		}
		both = append(both, line)
	}
	path = filepath.Join(t.TempDir(), "nats.conf")
	check(t, os.WriteFile(path, []byte(strings.Join(both, "")), 0o600))
	return path
}

// TestServeDatabases: one process serves two databases with the users of nats.conf, which
// has the same rights on both for each user.
func TestServeDatabases(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, withDatabase(t, "other"), 3)
	contexts(t, c.urls)
	s := harness.Serve(t, serveArgs(c.urls, "--database", "main,other", "--retain", "1h", "--snapshot-every", "1s")...)
	producer, err := jetstream.New(c.connect(t, "producer"))
	check(t, err)
	for _, database := range []string{"main", "other"} {
		done(t, "client", "collection", "create", "orders", `{"defaultTtl":-1}`, "--database", database)
		done(t, "client", "document", "upsert", "orders", "stays", `{}`, "--database", database)
		repeat(t, func(ctx context.Context) error {
			_, err := producer.Publish(ctx, "lapse."+database+".mutations.document.upsert.orders.goes", []byte(`{"ttl":1}`))
			return err
		})
		for _, user := range []string{"client", "auditor"} {
			eventually(t, fmt.Sprint(user, " reads the expiry in ", database), func() bool {
				return strings.Contains(as(t, user, "export", "--database", database).Stdout, `"DocumentExpired"`)
			})
			done(t, user, "audit", "--database", database)
		}
	}
	eventually(t, "both have a snapshot", func() bool {
		return strings.Contains(s.Stderr(), `msg="snapshot made and verified" database=main`) && strings.Contains(s.Stderr(), `msg="snapshot made and verified" database=other`)
	})
	s.Stop()
	refuse(t, s, violates)
	refuse(t, s, warns(s))
	for _, line := range c.violations() {
		t.Error(line)
	}
	refused := make(chan error, 1)
	bulk := c.connect(t, "bulk", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case refused <- err:
		default:
		}
	}))
	check(t, bulk.Publish("$JS.API.STREAM.INFO.LAPSE_other", nil))
	select {
	case <-refused:
	case <-time.After(patience):
		t.Error("bulk may read where the second log is appended to")
	}
}
