package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// day is the TTL of documents that must not expire.
const day = 24 * time.Hour

// fill upserts the first documents, in batches of the largest size, over several
// connections, and checks that every one was stored.
func fill(b *testing.B, l *lapse, collection string, documents int) {
	b.Helper()
	inBatches(b, l.URL(), 0, documents, func(nc *nats.Conn, from, to int) error {
		var body batchBody
		for n := from; n < to; n++ {
			body.document(n)
		}
		return askBatch(nc, collection, body.end(), to-from)
	})
	l.holds(b, documents)
}

// holds fails the benchmark unless the database has this number of documents.
func (l *lapse) holds(b *testing.B, documents int) {
	b.Helper()
	status, err := l.client.Status(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	if status.Documents != int64(documents) {
		b.Fatalf("%d documents live, want %d", status.Documents, documents)
	}
}

// millions formats a number for the table.
func millions(n int) string {
	switch {
	case n%1_000_000 == 0:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n%1_000 == 0:
		return fmt.Sprintf("%d k", n/1_000)
	}
	return fmt.Sprint(n)
}
