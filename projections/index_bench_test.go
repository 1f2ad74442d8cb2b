package projections

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
)

const benchPaths = `{"path":"/customer"},{"path":"/total"},{"path":"/tags"}`

// benchBody returns a document of some 200 bytes, whose total differs between versions.
func benchBody(id schema.DocumentID, i, version int) []byte {
	return fmt.Appendf(nil, `{"id":%q,"customer":"C%05d","total":%d.5,"status":"open","tags":["t%d","u%d"],"address":{"street":"Hauptstraße 17","city":"Salzburg","zip":"5020"},"note":"leave it with the neighbours"}`,
		id, i*7919%50000, (i*31+version)%1000, i%50, i%7)
}

// orders produces the events of a collection whose documents are created and then
// replaced repeatedly, in no order of keys. Its facts are Known, as a writer's.
type orders struct {
	seq   uint64
	metas []Meta
}

func (o *orders) next() Fact {
	o.seq++
	i := int(o.seq * 7919 % uint64(len(o.metas)))
	prior := o.metas[i]
	e := &schema.Event{Seq: o.seq, Time: int64(o.seq), Type: schema.DocumentCreated, Collection: "orders",
		ID: schema.DocumentID(fmt.Sprintf("order-%09d", i)), Previous: prior.Version}
	if prior.Version != 0 {
		e.Type = schema.DocumentReplaced
	}
	e.Body = benchBody(e.ID, i, int(prior.Version))
	o.metas[i] = Meta{Version: schema.Version(o.seq), TS: int64(o.seq) / 1000, TTL: schema.Inherit, Size: int64(len(e.Body)), Sum: SumOf(e.Body)}
	return Fact{Event: e, Known: true, Incarnation: 1, Prior: prior, TTL: schema.Inherit, Sum: o.metas[i].Sum}
}

func (o *orders) facts(n int) []Fact {
	facts := make([]Fact, n)
	for i := range facts {
		facts[i] = o.next()
	}
	return facts
}

const benchFold = 500 // events

func mustFold(b *testing.B, s *Store, facts []Fact) {
	for len(facts) > 0 {
		n := min(benchFold, len(facts))
		if err := s.Fold(facts[:n]); err != nil {
			b.Fatal(err)
		}
		facts = facts[n:]
	}
}

// benchOrders returns a projection with an empty collection.
func benchOrders(b *testing.B, documents int, mode, paths string) (*Store, *orders) {
	s, err := Open("projection", Options{FS: vfs.NewMem()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	mustFold(b, s, []Fact{{Event: &schema.Event{Seq: 1, Type: schema.CollectionCreated, Collection: "orders",
		Body: []byte(`{"indexingPolicy":{"indexingMode":"` + mode + `","includedPaths":[` + paths + `]}}`)}}})
	return s, &orders{seq: 1, metas: make([]Meta, documents)}
}

// BenchmarkFold folds Known facts into a collection without and with secondary indexes:
// of new documents, of documents no longer in memory, and of recently replaced ones.
func BenchmarkFold(b *testing.B) {
	const documents = 200_000
	for _, paths := range []struct{ name, mode, included string }{
		{"paths=0", "consistent", ""}, {"paths=3", "consistent", benchPaths}, {"paths=3lazy", "lazy", benchPaths},
	} {
		for _, kind := range []string{"create", "replace", "replace-hot"} {
			b.Run(kind+"/"+paths.name, func(b *testing.B) {
				size := documents
				if kind == "replace-hot" {
					size = 20_000
				}
				s, o := benchOrders(b, size, paths.mode, paths.included)
				if kind == "create" {
					o.metas = make([]Meta, max(documents, b.N*benchFold))
				} else {
					mustFold(b, s, o.facts(size))
				}
				facts := o.facts(b.N * benchFold)
				b.ReportAllocs()
				b.ResetTimer()
				mustFold(b, s, facts)
				b.ReportMetric(float64(len(facts))/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// BenchmarkView reads a collection, most of it from tables: all entries and documents
// in sequence, and documents one by one in the order of an index.
func BenchmarkView(b *testing.B) {
	const documents = 200_000
	s, o := benchOrders(b, documents, "consistent", benchPaths)
	mustFold(b, s, o.facts(documents*3/2))
	if err := s.db.Flush(); err != nil {
		b.Fatal(err)
	}
	mustFold(b, s, o.facts(documents/10))
	run := func(name string, once func(b *testing.B, v *View) (rows int)) {
		b.Run(name, func(b *testing.B) {
			v, ok, err := s.View("orders")
			if !ok || err != nil {
				b.Fatal(err)
			}
			defer v.Close()
			rows := 0
			b.ReportAllocs()
			for b.Loop() {
				rows += once(b, v)
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	run("open", func(b *testing.B, _ *View) int {
		v, ok, err := s.View("orders")
		if !ok || err != nil {
			b.Fatal(err)
		}
		if err := v.Close(); err != nil {
			b.Fatal(err)
		}
		return 1
	})
	scan := func(path int, visit func(e IndexEntry) bool) func(b *testing.B, v *View) int {
		return func(b *testing.B, v *View) (rows int) {
			it := v.Entries(v.Indexes()[path], ValueSpace, nil, nil)
			for it.Next() {
				e, err := it.Entry()
				if err != nil {
					b.Fatal(err)
				}
				if rows++; !visit(e) {
					break
				}
			}
			if err := it.Close(); err != nil {
				b.Fatal(err)
			}
			return rows
		}
	}
	run("entries", scan(0, func(IndexEntry) bool { return true }))
	run("documents", func(b *testing.B, v *View) (rows int) {
		d := v.Documents("", "")
		for d.Next() {
			if _, err := d.Record(); err != nil {
				b.Fatal(err)
			}
			rows++
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
		return rows
	})
	run("entries-documents", func(b *testing.B, v *View) int {
		left := 1000
		return scan(0, func(e IndexEntry) bool {
			if _, ok, err := v.Document(e.ID); !ok || err != nil {
				b.Fatal(err)
			}
			left--
			return left > 0
		})(b, v)
	})
}

// BenchmarkIndex builds three indexes of existing documents.
func BenchmarkIndex(b *testing.B) {
	const documents = 100_000
	for _, mode := range []string{"consistent", "lazy"} {
		b.Run(mode, func(b *testing.B) {
			s, o := benchOrders(b, documents, "consistent", "")
			mustFold(b, s, o.facts(documents))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				for _, body := range []string{"none", mode} {
					o.seq++
					mustFold(b, s, []Fact{{Event: &schema.Event{Seq: o.seq, Type: schema.CollectionReplaced, Collection: "orders",
						Body: []byte(`{"indexingPolicy":{"indexingMode":"` + body + `","includedPaths":[` + benchPaths + `]}}`)}}})
				}
				for more := true; more; {
					var err error
					if more, err = s.Index(1000); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(documents*b.N)/b.Elapsed().Seconds(), "documents/s")
		})
	}
}
