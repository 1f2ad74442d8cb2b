package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// roundTime is how long callers work in one round.
var roundTime = versus.Size(time.Second, 300*time.Millisecond)

const (
	// connections is the number that the callers of one side share.
	connections = 4
	// timeout bounds each step that is not measured.
	timeout = 30 * time.Second
)

var check = harness.Check

func TestMain(m *testing.M) {
	versus.Main(versus.Roles{upserter: upsertForever, twoAccounts: serveTwoAccounts})
	os.Exit(harness.Main(m))
}

// lapse is `lapse serve` in a process of its own.
type lapse struct {
	*harness.Server
	client *client.Client
}

func startLapse(b *testing.B, durability processor.Durability, args ...string) *lapse {
	b.Helper()
	return startProfiled(b, func(args ...string) *harness.Server { return harness.Serve(b, args...) },
		append(args, "--durability", string(durability))...)
}

// startProfiled starts lapse with serve, profiled if profiles are asked for.
func startProfiled(b *testing.B, serve func(args ...string) *harness.Server, args ...string) *lapse {
	b.Helper()
	address := ""
	if profiles != "" {
		address = harness.FreeAddr(b)
		args = append(args, "--metrics", address, "--debug")
	}
	server := serve(args...)
	if address != "" {
		profile(b, address)
	}
	c, err := client.New(versus.Connect(b, server.URL()))
	check(b, err)
	return &lapse{server, c}
}

func (l *lapse) create(b *testing.B, name string, opts ...client.PropertyOption) *client.Collection {
	b.Helper()
	c, err := l.client.CreateCollection(context.Background(), name, opts...)
	check(b, err)
	return c
}

// logStream returns the stream of the log.
func (l *lapse) logStream(b *testing.B) jetstream.Stream {
	b.Helper()
	stream, err := harness.JetStream(b, versus.Connect(b, l.URL())).Stream(context.Background(), "LAPSE_main")
	check(b, err)
	return stream
}

// subject returns the subject of a request about document n.
func subject(op, collection string, n int) string {
	return "lapse.main.api.document." + op + "." + collection + "." + schema.DocumentID(versus.ID(n)).Token()
}

// request sends a request and expects one of two codes.
func request(nc *nats.Conn, subject string, body []byte, codes [2]string) (*nats.Msg, error) {
	m, err := nc.Request(subject, body, timeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	if code := m.Header.Get(schema.HeaderStatus); code != codes[0] && code != codes[1] {
		return nil, fmt.Errorf("%s: %s %s", subject, code, m.Data)
	}
	return m, nil
}

var (
	read    = [2]string{"200", "200"}
	written = [2]string{"200", "201"}
)

// load upserts documents from to to, in batches, and returns the results of the
// last one.
func load(b *testing.B, c *client.Collection, from, to int, document func(n int) []byte) (results client.Results) {
	b.Helper()
	for from < to {
		batch := c.Batch()
		for ; from < to && batch.Len() < client.MaxBatch; from++ {
			batch.Upsert(versus.ID(from), json.RawMessage(document(from)))
		}
		var err error
		if results, err = batch.Run(context.Background()); err == nil {
			err = results.Err()
		}
		check(b, err)
	}
	return results
}
