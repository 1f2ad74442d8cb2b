package bench

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/versus"
)

// day is the TTL of documents that must not expire.
const day = 24 * time.Hour

// batchBody is the body of a batch request. The client's Batch would encode each document
// again, on the machine that is measured.
type batchBody struct{ text []byte }

func (w *batchBody) next(op string, n int) {
	if w.text == nil {
		w.text = append(w.text, `{"operations":[`...)
	} else {
		w.text = append(w.text, ',')
	}
	w.text = fmt.Appendf(w.text, `{"op":%q,"id":%q`, op, versus.ID(n))
}

func (w *batchBody) get(n int) {
	w.next("get", n)
	w.text = append(w.text, '}')
}

func (w *batchBody) document(n int, members string) {
	w.next("upsert", n)
	w.text = append(append(append(w.text, `,"body":`...), versus.DocumentWith(n, members)...), '}')
}

func (w *batchBody) end() []byte { return append(w.text, `]}`...) }

// documents counts the documents in a reply without parsing it, since callers share the
// machine with the server that is measured. No document contains these bytes.
func documents(reply []byte) int { return bytes.Count(reply, []byte(`"_etag":"`)) }

// fill upserts the first documents, in batches of the largest size, over several
// connections, and checks that every one was stored.
func fill(b *testing.B, l *lapse, collection string, documents int) {
	b.Helper()
	inBatches(b, l.URL(), 0, documents, func(nc *nats.Conn, from, to int) error {
		var body batchBody
		for n := from; n < to; n++ {
			body.document(n, "")
		}
		return askBatch(nc, collection, body.end(), to-from)
	})
	l.holds(b, documents)
}

// holds fails the benchmark unless the database has this number of documents.
func (l *lapse) holds(b *testing.B, documents int) {
	b.Helper()
	status, err := l.client.Status(context.Background())
	check(b, err)
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
