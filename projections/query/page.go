package query

import (
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// page holds the documents of a reply as they are sent, so that the size of a reply
// bounds the memory of a query.
type page struct {
	run  *run
	body []byte // up to the last document
	rows []pageRow
	last position // of the last row, once the page is full
	more bool     // another page may follow
}

// pageRow is the position of a document in the body.
type pageRow struct {
	start, end int
	deadline   schema.Deadline
}

func (r *run) newPage() *page {
	return &page{run: r, body: append(make([]byte, 0, pageBytes), pageStart...), rows: make([]pageRow, 0, min(r.request.limit, pageRows))}
}

const (
	pageStart = `{"documents":[`
	pageBytes = 4096 // initial capacity of a page
	pageRows  = 16
)

// add adds a document. It does not keep the record and the position.
func (p *page) add(record projections.Record, at position) error {
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
		p.body = schema.AddDeadline(p.body, row.start, row.deadline)
	}
	p.run.worked(len(record.Body))
	row.end = len(p.body)
	p.rows = append(p.rows, row)
	if len(p.rows) == p.run.request.limit {
		p.last = at.clone()
	}
	if len(p.body) > p.run.room {
		return errBytes
	}
	return nil
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
// has expired meanwhile.
func (r *run) finish(p *page) ([]byte, error) {
	p.dropExpired(max(r.clock(), r.now))
	body := append(p.body, ']')
	if p.more {
		body = append(body, `,"cursor":"`...)
		body = append(body, r.engine.sealer.seal(r.view.Collection().Incarnation, r.request, p.last)...)
		body = append(body, '"')
	}
	if r.request.explain {
		body = r.appendPlan(body, len(p.rows))
	}
	if body = append(body, '}'); len(body) > r.room {
		return nil, errBytes
	}
	return body, nil
}
