package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
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
	must(t, err)
	return &ledger{t: t, store: s, time: naiveNow * 1000}
}

func (l *ledger) close() {
	must(l.t, l.store.Close())
}

// write folds an event with its Seq, or the next one if that is 0.
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
	engine, err := query.New(query.Options{Limits: l, Secret: []byte("secret")})
	must(t, err)
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
	size int // bytes of the reply
}

const room = 1 << 20

func ask(engine *query.Engine, store *projections.Store, now int64, body string) (p page, seq uint64, err error) {
	return askFor(room, engine, store, now, body)
}

// askFor is ask for a reply of at most so many bytes.
func askFor(room int, engine *query.Engine, store *projections.Store, now int64, body string) (p page, seq uint64, err error) {
	reply, err := engine.Answer(context.Background(), store, query.Ask{Collection: things, Body: []byte(body), Now: func(int64) int64 { return now }, Room: room})
	if err != nil {
		return p, 0, err
	}
	if !json.Valid(reply.Body) {
		return p, 0, fmt.Errorf("the reply is no JSON: %s", reply.Body)
	}
	p.size = len(reply.Body)
	return p, reply.Seq, json.Unmarshal(reply.Body, &p)
}

// body returns the request for a case; a limit of 0 sends none.
func (c naiveCase) body(limit int, cursor string, count bool) string {
	m := map[string]any{"explain": true}
	if c.Cond != nil {
		m["where"] = c.where()
	}
	if c.IDPrefix != "" {
		m["idPrefix"] = c.IDPrefix
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

// check runs the case's query page by page, and its count, and compares the replies with
// the naive results. A lazy index that lags behind may leave documents out, but not return
// a wrong one.
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
	behind := false
	cursor := ""
	for pages := 0; ; pages++ {
		p, err := c.page(engine, store, limit, cursor)
		if err != nil {
			return err
		}
		if p.Plan == nil || p.Plan.Returned != len(p.Documents) {
			return fmt.Errorf("the plan %+v is not that of %d documents", p.Plan, len(p.Documents))
		}
		behind = behind || p.Plan.Behind != nil && *p.Plan.Behind > 0
		got = append(got, p.Documents...)
		if cursor = p.Cursor; cursor == "" {
			break
		}
		if len(p.Documents) == 0 || pages > len(c.Docs) {
			return fmt.Errorf("page %d has %d documents and a cursor", pages, len(p.Documents))
		}
	}
	if behind {
		// The documents found are in the right order, with no others between.
		unmatched := got
		for _, document := range want.Documents {
			if len(unmatched) > 0 && naiveSameText(unmatched[0], document) {
				unmatched = unmatched[1:]
			}
		}
		if len(unmatched) > 0 {
			return fmt.Errorf("%s is not what comes next: %s", unmatched[0], got)
		}
	} else {
		if len(got) != len(want.Documents) {
			return fmt.Errorf("%d documents, not %d: %s", len(got), len(want.Documents), got)
		}
		for i := range got {
			if !naiveSameText(got[i], want.Documents[i]) {
				return fmt.Errorf("document %d is %s, not %s (%s)", i, got[i], want.Documents[i], want.IDs[i])
			}
		}
	}
	p, _, err := ask(engine, store, c.Now, c.body(0, "", true))
	if err != nil {
		return err
	}
	if err := c.checkScan(p); err != nil {
		return err
	}
	behind = p.Plan.Behind != nil && *p.Plan.Behind > 0
	if p.Count == nil || *p.Count != want.Total && !(behind && *p.Count < want.Total) {
		return fmt.Errorf("count is %v, not %d", *p.Count, want.Total)
	}
	return nil
}

// page returns a page in c.Room bytes, or with one document if that alone is larger. A page
// that ends early had no room for one more.
func (c naiveCase) page(engine *query.Engine, store *projections.Store, limit int, cursor string) (page, error) {
	p, _, err := askFor(c.Room, engine, store, c.Now, c.body(limit, cursor, false))
	if err == nil {
		err = c.checkScan(p)
	}
	tooLarge := errors.Is(err, schema.ErrTooLarge)
	if err != nil && !tooLarge || err == nil && (p.Cursor == "" || len(p.Documents) == limit) {
		return p, err
	}
	if len(p.Documents) > 0 && p.size > c.Room {
		return p, fmt.Errorf("the page has %d bytes", p.size)
	}
	more, _, err := ask(engine, store, c.Now, c.body(len(p.Documents)+1, cursor, false))
	if err == nil && more.size < c.Room-25 { // the plan may have more digits
		err = fmt.Errorf("the page ends after %d documents, and one more needs only %d bytes", len(p.Documents), more.size)
	}
	if tooLarge {
		return more, err
	}
	return p, err
}

// checkScan checks that a query with idPrefix read nothing else.
func (c naiveCase) checkScan(p page) error {
	if most := len(naiveWithPrefix(c.Docs, c.IDPrefix)); c.IDPrefix != "" && (p.Plan.Index != nil || p.Plan.Scanned > most) {
		return fmt.Errorf("the plan is %+v, and %d documents have the prefix", p.Plan, most)
	}
	return nil
}

// TestQueriesMatchNaive compares conditions, orders, selections and pages with the naive
// reference, without indexes.
func TestQueriesMatchNaive(t *testing.T) {
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

// TestQueriesMatchNaiveWhileWriting queries while documents are created, replaced, expired and deleted,
// expiry lags, paths and modes change, and indexes are built. Whatever the plan, the
// result is the naive one at that position of the log.
func TestQueriesMatchNaiveWhileWriting(t *testing.T) {
	engine := newEngine(t, query.Limits{})
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(t)
		defer l.close()
		h := &history{t: t, ledger: l, docs: make(map[string]naiveDoc)}
		h.policy = drawNaivePolicy(t)
		l.write(schema.Event{Type: schema.CollectionCreated, Collection: things, Body: h.policy.json()})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			h.step(engine)
		}
		for more := true; more; {
			var err error
			if more, err = l.store.Index(3); err != nil {
				t.Fatal(err)
			}
		}
		h.ask(engine)
	})
}

type history struct {
	*ledger
	t      *rapid.T
	policy naivePolicy
	docs   map[string]naiveDoc // including expired ones until they are swept
}

func (h *history) step(engine *query.Engine) {
	step := rapid.SampledFrom([]string{"put", "put", "put", "put", "ask", "ask", "ask", "index", "delete", "sweep", "wait", "policy", "recreate"}).Draw(h.t, "step")
	now := h.time / 1000
	switch step {
	case "put":
		for range rapid.IntRange(1, 4).Draw(h.t, "puts") {
			id := rapid.SampledFrom(naiveIDs).Draw(h.t, "id")
			old, exists := h.docs[id]
			d := drawNaiveDoc(h.t, id, h.seq+1)
			d.TS = now
			e := schema.Event{Type: schema.DocumentCreated, Collection: things, ID: schema.DocumentID(id), Body: d.Body}
			if exists {
				e.Type, e.Previous = schema.DocumentReplaced, schema.Version(old.Version)
			}
			d.Version = h.write(e)
			h.docs[id] = d
		}
	case "delete":
		h.end(schema.DocumentDeleted, func(naiveDoc) bool { return true })
	case "sweep":
		h.end(schema.DocumentExpired, func(d naiveDoc) bool { return !d.live(h.policy.DefaultTTL, now) })
	case "wait":
		h.time += rapid.Int64Range(1, 12_000).Draw(h.t, "ms")
	case "index":
		if _, err := h.store.Index(rapid.IntRange(1, 5).Draw(h.t, "documents")); err != nil {
			h.t.Fatal(err)
		}
	case "policy":
		h.policy = drawNaivePolicy(h.t)
		h.write(schema.Event{Type: schema.CollectionReplaced, Collection: things, Body: h.policy.json()})
	case "recreate":
		if !naiveOneIn(h.t, 4) {
			return
		}
		h.write(schema.Event{Type: schema.CollectionDeleted, Collection: things})
		h.write(schema.Event{Type: schema.CollectionCreated, Collection: things, Body: h.policy.json()})
		clear(h.docs)
	case "ask":
		h.ask(engine)
	}
}

// end ends a random one of the documents that may end in this way, or none.
func (h *history) end(t schema.EventType, may func(naiveDoc) bool) {
	for _, id := range slices.Sorted(maps.Keys(h.docs)) {
		d := h.docs[id]
		if !may(d) || naiveOneIn(h.t, 2) {
			continue
		}
		e := schema.Event{Type: t, Collection: things, ID: schema.DocumentID(id), Previous: schema.Version(d.Version), Body: d.Body}
		if naiveOneIn(h.t, 2) {
			e.Body = nil // a collection without previous images
		}
		h.write(e)
		delete(h.docs, id)
		return
	}
}

func (h *history) ask(engine *query.Engine) {
	c := naiveCase{Policy: h.policy, Now: h.time / 1000}
	for _, id := range slices.Sorted(maps.Keys(h.docs)) {
		c.Docs = append(c.Docs, h.docs[id])
	}
	c.Params = drawNaiveParams(h.t, c.Docs)
	if !naiveOneIn(h.t, 8) {
		c.Cond = drawNaiveCond(h.t, c.Docs, c.Params)
		if naiveOneIn(h.t, 2) {
			c.Cond = naiveAnd(c.Cond, drawNaiveCond(h.t, c.Docs, c.Params))
		}
	}
	c.drawPages(h.t)
	if err := c.check(engine, h.store); err != nil {
		h.t.Fatalf("%v\n%v", err, c)
	}
}

// must ends the test on an error.
func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
