package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// run is one query under way.
type run struct {
	engine  *Engine
	request *request
	view    *projections.View
	ctx     context.Context // ends when the query has to
	clock   func() int64
	room    int
	now     int64       // seconds since 1970
	where   *evaluation // nil takes every document

	planner planner
	access  *access
	sorter  *sorter
	after   *position // where the page begins, nil for the first one
	scanned int
	read    int // bytes of documents since the last look at the time
	pace    func(ctx context.Context, worked time.Duration)
	enough  int       // at how many scanned to end with errAhead, 0 for not
	slice   time.Time // when it began
	whole   []byte    // scratch
}

// A query works in slices: every sliceRows documents or entries, or sliceBytes of
// them, it looks at the time, and after sliceTime it lets others go first.
const (
	sliceRows  = 64
	sliceBytes = 64 << 10
	sliceTime  = 200 * time.Microsecond
)

// step counts one more document or entry that is looked at.
func (r *run) step() error {
	if r.scanned++; r.scanned > r.engine.limits.Scanned {
		return errScanned
	}
	if r.enough != 0 && r.scanned > r.enough {
		return errAhead
	}
	if r.scanned%sliceRows == 0 || r.read > sliceBytes {
		r.yield()
	}
	return r.ctx.Err()
}

func (r *run) yield() {
	r.read = 0
	worked := time.Since(r.slice)
	if worked < sliceTime {
		return
	}
	if r.pace != nil {
		r.pace(r.ctx, worked)
	}
	runtime.Gosched()
	r.slice = time.Now()
}

func (r *run) answer() ([]byte, error) {
	if r.request.cursor != "" {
		p, ok := r.engine.sealer.open(r.view.Collection().Incarnation, r.request)
		if !ok {
			return nil, errCursor
		}
		r.after = &p
	}
	r.planner.ctx, r.planner.view, r.planner.orderBy = r.ctx, r.view, r.request.orderBy
	if r.where != nil {
		r.planner.condition, r.planner.constants = r.where.condition, r.where.constants
	}
	if r.request.count {
		return r.answerCount()
	}
	r.sorter = newSorter(r.request.orderBy)
	narrow, ordered, err := r.planner.plan()
	if err != nil {
		return nil, err
	}
	chosen, err := r.planner.choose(narrow, ordered, r.request.limit)
	if err != nil {
		return nil, err
	}
	p, err := r.page(chosen)
	if errors.Is(err, errCutKey) {
		// The order of values whose keys are cut is only in the documents.
		ordered.ordered, r.enough = false, 0
		if chosen, err = r.planner.choose(narrow, nil, r.request.limit); err != nil {
			return nil, err
		}
		p, err = r.page(chosen)
	}
	if err != nil {
		return nil, err
	}
	return r.finish(p)
}

// errCutKey says that an index cannot give the order.
var errCutKey = errors.New("the key of a value is cut")

// page returns the matching documents of the page, in order.
func (r *run) page(a *access) (*page, error) {
	r.access = a
	if a.ordered || len(r.request.orderBy) == 0 && (a.scan || a.single) {
		return r.stream(a)
	}
	best := top{most: r.request.limit + 1}
	err := r.each(a, nil, func(c *candidate) (bool, error) {
		at := position{id: c.id}
		if len(r.request.orderBy) > 0 {
			record, ok, err := c.record()
			if !ok || err != nil {
				return true, err
			}
			if at.key, err = r.sorter.of(record); err != nil {
				return false, err
			}
		}
		if r.after != nil && at.compare(*r.after) <= 0 {
			return true, nil
		}
		if best.add(at) > r.engine.limits.SortBytes {
			return false, errSortBytes
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	p := r.newPage()
	for _, at := range best.inOrder() {
		if len(p.rows) == r.request.limit {
			p.more = true
			break
		}
		record, ok, err := r.view.Document(at.id)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("query: an index has document %q of %s, which is not there at %d", at.id, r.view.Collection().Name, r.view.Seq())
		}
		if err := p.add(record, at); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// lookahead is how many rows are looked at for whether there is more than the
// page. If that doesn't tell, the client finds out.
const lookahead = 1000

// stream is page for an access that gives the documents in the query's order.
func (r *run) stream(a *access) (*page, error) {
	p := r.newPage()
	full := func() bool { return len(p.rows) == r.request.limit }
	err := r.each(a, r.after, func(c *candidate) (bool, error) {
		if full() {
			p.more = true
			return false, nil
		}
		record, ok, err := c.record()
		if !ok || err != nil {
			return true, err
		}
		at := position{id: c.id}
		if a.ordered {
			if at.key, err = r.sorter.of(record); err != nil {
				return false, err
			}
		}
		if err := p.add(record, at); err != nil {
			return false, err
		}
		if full() {
			r.enough = r.scanned + lookahead
		}
		return true, nil
	})
	if full() && (errors.Is(err, errAhead) || errors.Is(err, errScanned) || errors.Is(err, context.DeadlineExceeded)) {
		p.more = true
		return p, nil
	}
	return p, err
}

// answerCount counts the documents that match.
func (r *run) answerCount() ([]byte, error) {
	n := 0
	if r.where == nil {
		counts, err := r.view.Count(r.now)
		if err != nil {
			return nil, err
		}
		n = int(counts.Documents)
	} else {
		narrow, _, err := r.planner.plan()
		if err != nil {
			return nil, err
		}
		a, err := r.planner.choose(narrow, nil, 1)
		if err != nil {
			return nil, err
		}
		r.access = a
		if err := r.each(a, nil, func(*candidate) (bool, error) { n++; return true, nil }); err != nil {
			return nil, err
		}
	}
	body := strconv.AppendInt([]byte(`{"count":`), int64(n), 10)
	if r.request.explain {
		body = r.appendPlan(body, n)
	}
	return append(body, '}'), nil
}

// candidate is a document that lives and matches; its memory is valid until
// the next one.
type candidate struct {
	run  *run
	id   []byte
	body projections.Record
	read bool
}

// record returns the document, ok false if there is none after all.
func (c *candidate) record() (projections.Record, bool, error) {
	if c.read {
		return c.body, true, nil
	}
	record, ok, err := c.run.view.Document(c.id)
	return record, ok, err
}

// matches tells whether a document lives and the condition is true for it.
func (r *run) matches(record projections.Record) (bool, error) {
	if record.Deadline(r.view.Collection()).Passed(r.now) {
		return false, nil
	}
	r.read += len(record.Body)
	if r.where == nil {
		return true, nil
	}
	return r.where.matches(record)
}

// errAhead says that looking further was not worth it.
var errAhead = errors.New("enough was looked at")

// each visits the documents that live and match, after a position if the access
// is in the query's order, until visit returns false.
func (r *run) each(a *access, after *position, visit func(*candidate) (bool, error)) error {
	if a.ids != nil {
		return r.eachNamed(a.ids, after, visit)
	}
	if a.scan {
		return r.eachDocument(after, visit)
	}
	return r.eachEntry(a, after, visit)
}

func (r *run) eachDocument(after *position, visit func(*candidate) (bool, error)) (err error) {
	var from schema.DocumentID
	if after != nil {
		from = schema.DocumentID(after.id)
	}
	documents := r.view.Documents(from)
	defer func() { err = errors.Join(err, documents.Close()) }()
	c := &candidate{run: r, read: true}
	for ok := documents.First(); ok; ok = documents.Next() {
		if err := r.step(); err != nil {
			return err
		}
		if c.body, err = documents.Record(); err != nil {
			return err
		}
		matches, err := r.matches(c.body)
		if err != nil {
			return err
		}
		if !matches {
			continue
		}
		c.id = documents.ID()
		if more, err := visit(c); !more || err != nil {
			return err
		}
	}
	return nil
}

// eachNamed visits documents by their ids, which ascend.
func (r *run) eachNamed(ids []string, after *position, visit func(*candidate) (bool, error)) error {
	c := &candidate{run: r, read: true}
	for _, id := range ids {
		c.id = []byte(id)
		if after != nil && id <= string(after.id) {
			continue
		}
		if err := r.step(); err != nil {
			return err
		}
		var ok bool
		var err error
		if c.body, ok, err = r.view.Document(c.id); err != nil {
			return err
		} else if ok {
			ok, err = r.matches(c.body)
		}
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if more, err := visit(c); !more || err != nil {
			return err
		}
	}
	return nil
}

// eachEntry visits what the entries of an index lead to.
func (r *run) eachEntry(a *access, after *position, visit func(*candidate) (bool, error)) error {
	if a.ordered && after != nil && len(after.key) > projections.MaxValueKeyBytes {
		return errCutKey
	}
	c := &candidate{run: r}
	collection := r.view.Collection()
	walk := walker{ctx: r.ctx, view: r.view, access: a, after: after}
	return walk.entries(func(entry projections.IndexEntry) (bool, error) {
		if err := r.step(); err != nil {
			return false, err
		}
		if a.ordered && !entry.Whole {
			return false, errCutKey
		}
		if !a.index.Lazy && entry.Meta.Deadline(collection).Passed(r.now) {
			return true, nil
		}
		c.id, c.read = entry.ID, false
		if a.exact && entry.Whole {
			return visit(c)
		}
		record, ok, err := c.record()
		if !ok || err != nil {
			return true, err
		}
		c.body, c.read = record, true
		if matches, err := r.matches(record); !matches || err != nil {
			return true, err
		}
		if a.ordered && a.index.Lazy {
			if there, err := r.stillAt(entry, record); !there || err != nil {
				return true, err
			}
		}
		return visit(c)
	})
}

// stillAt tells whether a document's value is what the entry of a lazy index
// says. If not, it will get another entry elsewhere.
func (r *run) stillAt(entry projections.IndexEntry, record projections.Record) (bool, error) {
	key, err := r.sorter.of(record)
	if r.access.desc {
		turn(key)
	}
	return bytes.Equal(key, entry.Key), err
}
