package bench

import (
	"fmt"
	"testing"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkQuery reads pages of documents by deadline, against pages of the same size by an
// index with as many entries.
func BenchmarkQuery(b *testing.B) {
	const page = 100
	all := versus.Size(1_000_000, 100_000)
	l := startLapse(b, processor.OS)
	l.create(b, "orders", client.DefaultTTL(day), client.IncludePaths("/total"))
	fill(b, l, "orders", all)
	nc := versus.Connect(b, l.URL())
	pages := func(query string) versus.Side {
		return (&versus.Callers{N: 1, For: roundTime / 2, Process: l.PID(), Each: page, Do: func(int, int) error {
			reply, err := request(nc, "lapse.main.api.query.orders", []byte(query), read)
			if err == nil && documents(reply.Data) != page {
				err = fmt.Errorf("a page of %d documents, want %d", documents(reply.Data), page)
			}
			return err
		}}).Round(b)
	}
	versus.Run(b, fmt.Sprintf("query for a page of %d of %s documents that come due, documents", page, thousands(all)),
		pages(`{"due":{},"limit":100}`), versus.Peer{Name: "a page by an index", Goal: versus.AtLeast(0.5),
			Round: pages(`{"where":"doc.total >= 0.0","orderBy":[{"path":"/total"}],"limit":100}`)})
}
