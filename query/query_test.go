package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/query"
	"github.com/lapsedb/lapse/schema"
)

const things = schema.CollectionName("things")

// ledger writes a log for tests and folds it at once.
type ledger struct {
	t     rapid.TB
	store *projections.Store
	seq   uint64
	time  int64 // ms
}

func newLedger(t rapid.TB) *ledger {
	t.Helper()
	s, err := projections.Open("projection", projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 256 << 10, DocumentBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return &ledger{t: t, store: s, time: naiveNow * 1000}
}

func (l *ledger) close() {
	if err := l.store.Close(); err != nil {
		l.t.Fatal(err)
	}
}

// write folds an event, whose Seq is the next one unless it is given.
func (l *ledger) write(e schema.Event) uint64 {
	l.t.Helper()
	l.seq = max(l.seq+1, e.Seq)
	e.Seq = l.seq
	if e.Time == 0 {
		e.Time = l.time
	}
	before := l.store.Cursor().Foreign
	if err := l.store.Fold([]projections.Fact{{Event: &e}}); err != nil {
		l.t.Fatal(err)
	}
	if l.store.Cursor().Foreign != before {
		l.t.Fatalf("event %d %s of %q does not fit", e.Seq, e.Type, e.ID)
	}
	return l.seq
}

func (p naivePolicy) json() []byte {
	properties := schema.Properties{DefaultTTL: schema.DefaultTTL(p.DefaultTTL), IndexingMode: schema.IndexingMode(p.Mode), IncludedPaths: p.Paths, PreviousImages: true}
	return properties.AppendJSON(nil)
}

func newEngine(t rapid.TB, l query.Limits) *query.Engine {
	t.Helper()
	engine, err := query.New(l, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// page is a decoded reply.
type page struct {
	Documents []json.RawMessage `json:"documents"`
	Cursor    string            `json:"cursor"`
	Count     *int              `json:"count"`
	Plan      *struct {
		Index    *string  `json:"index"`
		Scanned  int      `json:"scanned"`
		Returned int      `json:"returned"`
		Behind   *uint64  `json:"behind"`
		Building []string `json:"building"`
	} `json:"plan"`
}

const room = 1 << 20

func ask(engine *query.Engine, store *projections.Store, now int64, body string) (p page, seq uint64, err error) {
	reply, err := engine.Answer(context.Background(), store, things, []byte(body), func(logTime int64) int64 { return now }, room)
	if err != nil {
		return p, 0, err
	}
	if !json.Valid(reply.Body) {
		return p, 0, fmt.Errorf("the reply is no JSON: %s", reply.Body)
	}
	return p, reply.Seq, json.Unmarshal(reply.Body, &p)
}

// body is the request for a case, limit 0 being as many as there may be.
func (c naiveCase) body(limit int, cursor string, count bool) string {
	m := map[string]any{"explain": true}
	if c.Cond != nil {
		m["where"] = c.Cond.CEL()
	}
	if len(c.Params) > 0 {
		m["params"] = json.RawMessage(c.Params)
	}
	if count {
		m["count"] = true
		b, _ := json.Marshal(m)
		return string(b)
	}
	if len(c.OrderBy) > 0 {
		m["orderBy"] = c.OrderBy
	}
	if len(c.Select) > 0 {
		m["select"] = c.Select
	}
	if limit > 0 {
		m["limit"] = limit
	}
	if cursor != "" {
		m["cursor"] = cursor
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// check asks the case's query, page by page, and its count, and compares the
// answers with the naive ones. It returns the plan.
func (c naiveCase) check(engine *query.Engine, store *projections.Store) error {
	if c.Policy.Mode == "none" {
		_, _, err := ask(engine, store, c.Now, c.body(0, "", false))
		if !errors.Is(err, schema.ErrBadQuery) {
			return fmt.Errorf("a query with indexingMode none: %v", err)
		}
		return nil
	}
	all := c
	all.Limit = 0
	want := all.query()
	limit := c.Limit
	if limit == 0 {
		limit = 1000
	}
	var got []json.RawMessage
	cursor := ""
	for pages := 0; ; pages++ {
		p, _, err := ask(engine, store, c.Now, c.body(limit, cursor, false))
		if err != nil {
			return err
		}
		if p.Plan == nil || p.Plan.Returned != len(p.Documents) {
			return fmt.Errorf("the plan %+v is not that of %d documents", p.Plan, len(p.Documents))
		}
		got = append(got, p.Documents...)
		if cursor = p.Cursor; cursor == "" {
			break
		}
		if len(p.Documents) == 0 || pages > len(c.Docs) {
			return fmt.Errorf("page %d has %d documents and a cursor", pages, len(p.Documents))
		}
	}
	if len(got) != len(want.Documents) {
		return fmt.Errorf("%d documents, not %d: %s", len(got), len(want.Documents), got)
	}
	for i := range got {
		if !naiveSameText(got[i], want.Documents[i]) {
			return fmt.Errorf("document %d is %s, not %s (%s)", i, got[i], want.Documents[i], want.IDs[i])
		}
	}
	p, _, err := ask(engine, store, c.Now, c.body(0, "", true))
	if err != nil {
		return err
	}
	if p.Count == nil || *p.Count != want.Total {
		return fmt.Errorf("count is %v, not %d", p.Count, want.Total)
	}
	return nil
}

// TestLanguage holds conditions, orders, selections and pages against the naive
// reference, without indexes.
func TestLanguage(t *testing.T) {
	engine := newEngine(t, query.Limits{})
	rapid.Check(t, func(t *rapid.T) {
		c := drawNaiveCase(t, 30)
		c.Policy.Paths = nil
		l := newLedger(t)
		defer l.close()
		l.write(schema.Event{Type: schema.CollectionCreated, Collection: things, Body: c.Policy.json()})
		for i := range c.Docs {
			d := &c.Docs[i]
			d.Version += 100
			l.write(schema.Event{Seq: d.Version, Time: d.TS * 1000, Type: schema.DocumentCreated, Collection: things, ID: schema.DocumentID(d.ID), Body: d.Body})
		}
		if err := c.check(engine, l.store); err != nil {
			t.Fatalf("%v\n%v", err, c)
		}
	})
}
