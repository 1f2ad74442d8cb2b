package query

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/lapsedb/lapse/projections"
)

// run is the execution of one query. Fields up to where are set by Engine.Answer, the
// others by the run.
type run struct {
	engine  *Engine
	request *request
	view    *projections.View
	ctx     context.Context // ends the query
	clock   func() int64
	room    int
	now     int64       // seconds since 1970
	where   *evaluation // nil matches every document

	planner planner
	access  *access
	sorter  *sorter
	after   *position // where the page begins, nil for the first one
	scanned int
	read    int // bytes since the last check of the time
	pace    func(ctx context.Context, worked time.Duration)
	enough  int       // rows scanned at which to end with errAhead, 0 for none
	began   time.Time // start of the slice
	whole   []byte    // scratch
}

// A query works in slices: after sliceRows documents or entries, or sliceBytes, it
// checks the time, and after sliceTime it yields to others.
const (
	sliceRows  = 64
	sliceBytes = 64 << 10
	sliceTime  = 200 * time.Microsecond
)

// step counts one document or entry. It fails when the query has reached a limit, is to
// look no further, or has no time left.
func (r *run) step() error {
	if r.scanned++; r.scanned > r.engine.limits.Scanned {
		return errScanned
	}
	if r.enough != 0 && r.scanned > r.enough {
		return errAhead
	}
	if r.scanned%sliceRows == 0 {
		r.yield()
	}
	r.worked(0)
	return r.ctx.Err()
}

// worked counts bytes that were read or skipped, also within a document, so that a
// large one does not delay other queries.
func (r *run) worked(bytes int) {
	if r.read += bytes; r.read > sliceBytes {
		r.yield()
	}
}

// yield lets others run once the query has worked for sliceTime.
func (r *run) yield() {
	r.read = 0
	worked := time.Since(r.began)
	if worked < sliceTime {
		return
	}
	if r.pace != nil {
		r.pace(r.ctx, worked)
	}
	runtime.Gosched()
	r.began = time.Now()
}

// answer plans and runs the query. The loop runs again in two cases: the index of the
// order turned out to have cut keys, or all documents of a page expired while it was made.
func (r *run) answer() ([]byte, error) {
	if r.request.cursor != "" {
		p, ok := r.engine.sealer.open(r.view.Collection().Incarnation, r.request)
		if !ok {
			return nil, errCursor
		}
		r.after = &p
	}
	r.planner.ctx, r.planner.view, r.planner.orderBy, r.planner.special = r.ctx, r.view, r.request.orderBy, r.request.special()
	if r.where != nil {
		r.planner.condition, r.planner.constants = r.where.condition, r.where.constants
	}
	if r.request.count {
		return r.answerCount()
	}
	r.sorter = newSorter(r.request.orderBy, r.worked)
	narrow, ordered, err := r.planner.plan()
	if err != nil {
		return nil, err
	}
	for {
		chosen, err := r.planner.choose(narrow, ordered, r.request.limit)
		if err != nil {
			return nil, err
		}
		p, err := r.page(chosen)
		if errors.Is(err, errCutKey) {
			// Only the documents have the order of values with cut keys.
			ordered.ordered, ordered = false, nil
			continue
		}
		if err != nil {
			return nil, err
		}
		if body, err := r.finish(p); body != nil || err != nil {
			return body, err
		}
	}
}

// errCutKey means that an index cannot give the order: a key is cut.
var errCutKey = errors.New("the key of a value is cut")

// page returns the matching documents of the page, in order. Without an order to follow it
// reads all candidates and keeps the first ones in top. The documents are read again at
// the end: only their positions are kept, so that memory does not grow with what is
// scanned.
func (r *run) page(a *access) (*page, error) {
	r.access, r.enough = a, 0
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
		best.add(at)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	p := r.newPage()
	for _, at := range best.inOrder() {
		if p.full() {
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
		if added, err := p.add(record, at); err != nil {
			return nil, err
		} else if !added {
			break
		}
	}
	return p, nil
}

// lookahead limits the rows read to find out whether another page follows. Beyond it
// the reply has a cursor, and the next page may be empty.
const lookahead = 1000

// stream is page for an access in the query's order. It ends when the page is full and one
// more candidate is found, or not within lookahead rows.
func (r *run) stream(a *access) (*page, error) {
	p := r.newPage()
	err := r.each(a, r.after, func(c *candidate) (bool, error) {
		if p.full() {
			p.more = true
			return false, nil
		}
		record, ok, err := c.record()
		if !ok || err != nil {
			return true, err
		}
		at := position{key: c.key, id: c.id}
		if a.ordered {
			if at.key, err = r.sorter.of(record); err != nil {
				return false, err
			}
		}
		if added, err := p.add(record, at); !added || err != nil {
			return false, err
		}
		r.enough = 0
		if p.ready() {
			r.enough = r.scanned + lookahead
		}
		return true, nil
	})
	if p.ready() && (errors.Is(err, errAhead) || errors.Is(err, errScanned) || errors.Is(err, context.DeadlineExceeded)) {
		p.more = true
		return p, nil
	}
	return p, err
}

// answerCount counts the documents that match. A count without condition reads no
// documents but overdue ones: the projection has the number.
func (r *run) answerCount() ([]byte, error) {
	n := 0
	if r.where == nil && !r.request.special() {
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
		if r.access, err = r.planner.choose(narrow, nil, 1); err != nil {
			return nil, err
		}
		if err := r.each(r.access, nil, func(*candidate) (bool, error) { n++; return true, nil }); err != nil {
			return nil, err
		}
	}
	body := strconv.AppendInt([]byte(`{"count":`), int64(n), 10)
	if r.request.explain {
		body = r.appendPlan(body, n)
	}
	return append(body, '}'), nil
}
