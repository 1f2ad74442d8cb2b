package query

import (
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// page holds the documents of a reply as they are sent, so that the size of a reply
// bounds the memory of a query. The bytes of one page, as they grow:
//
//	{"documents":[  row , row , row   ]  ,"cursor":"…"   ,"plan":{…}  }
//	               start end            only if more      explain
//
// A page has room for its cursor at any time: fit is the number of rows after which a
// cursor still fits. Only when another document follows is a cursor needed, and then rows
// beyond fit are dropped.
type page struct {
	run  *run
	body []byte // up to the last document
	rows []pageRow
	tail int // bytes after the documents, without a cursor, at most

	// more: another page may follow. Then this one has only the first fit rows, up to
	// last: beyond it there is no room for the cursor. Without any, last is the first
	// document.
	more bool
	fit  int
	last position
}

// pageRow is the position of a document in the body.
type pageRow struct {
	start, end int
	deadline   schema.Deadline
}

// newPage returns an empty page. Its tail reserves what finish appends.
func (r *run) newPage() *page {
	p := &page{run: r, body: append(make([]byte, 0, pageBytes), pageStart...), rows: make([]pageRow, 0, min(r.request.limit, pageRows)), tail: len("]}")}
	if r.request.explain {
		p.tail += len(r.appendPlan(nil, r.request.limit)) + planDigits
	}
	return p
}

const (
	pageStart  = `{"documents":[`
	pageCursor = `,"cursor":"`
	pageBytes  = 4096 // initial capacity of a page
	pageRows   = 16
	planDigits = 19 // by which a plan may grow
)

// full reports whether the page has as many documents as the request asks for.
func (p *page) full() bool { return len(p.rows) == p.run.request.limit }

// ready reports whether all that is left to find out is whether another document follows.
func (p *page) ready() bool { return p.full() || p.fit < len(p.rows) }

// add adds a document. If there is no room for it, it returns false and sets more. It does
// not keep the record and the position.
func (p *page) add(record projections.Record, at position) (bool, error) {
	before := len(p.body)
	if len(p.rows) > 0 {
		p.body = append(p.body, ',')
	}
	row := pageRow{start: len(p.body), deadline: record.Deadline(p.run.view.Collection())}
	if sel := p.run.request.sel; sel == nil {
		p.body = schema.AppendReply(p.body, record.Body, record.TS, record.Version)
	} else {
		p.run.whole = schema.AppendReply(p.run.whole[:0], record.Body, record.TS, record.Version)
		p.run.worked(len(record.Body))
		p.body = sel.appendTo(p.body, p.run.whole)
	}
	if p.run.request.deadlines {
		lifetime, err := p.run.view.Lifetime(schema.DocumentID(at.id), record.Meta)
		if err != nil {
			return false, err
		}
		p.body = schema.AddLifetime(p.body, row.start, lifetime)
	}
	p.run.worked(len(record.Body))
	row.end = len(p.body)
	room := p.run.room - row.end - p.tail
	fits := room >= len(pageCursor)+sealedSize(at)+len(`"`)
	if fits || len(p.rows) == 0 {
		p.last = position{append(p.last.key[:0], at.key...), append(p.last.id[:0], at.id...)}
	}
	if room < 0 {
		p.body, p.more = p.body[:before], true
		return false, nil
	}
	if p.rows = append(p.rows, row); fits {
		p.fit = len(p.rows)
	}
	return true, nil
}

// dropExpired removes documents that expired while the query ran.
func (p *page) dropExpired(now int64) {
	kept := p.body[:len(pageStart)]
	rows := p.rows[:0]
	for _, row := range p.rows {
		if row.deadline.Passed(now) {
			continue
		}
		if len(rows) > 0 {
			kept = append(kept, ',')
		}
		start := len(kept)
		kept = append(kept, p.body[row.start:row.end]...)
		rows = append(rows, pageRow{start, len(kept), row.deadline})
	}
	p.body, p.rows = kept, rows
}

// finish makes the reply. The next page begins after the last document, even if that
// has expired meanwhile. If all have, and more follow, it returns nil, and the run goes on
// there.
func (r *run) finish(p *page) ([]byte, error) {
	if p.more {
		if p.fit == 0 {
			return nil, schema.ErrTooLarge.With("document %q alone is too large for a page of %d bytes: ask for less of it with select", p.last.id, r.room)
		}
		p.rows = p.rows[:p.fit]
	}
	now := max(r.clock(), r.now)
	p.dropExpired(now)
	if p.more && len(p.rows) == 0 {
		r.after, r.now = &p.last, now
		return nil, nil
	}
	body := append(p.body, ']')
	if p.more {
		body = append(body, pageCursor...)
		body = append(body, r.engine.sealer.seal(r.view.Collection().Incarnation, r.request, p.last)...)
		body = append(body, '"')
	}
	if r.request.explain {
		body = r.appendPlan(body, len(p.rows))
	}
	return append(body, '}'), nil
}
