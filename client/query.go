package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
)

// Query yields the documents that match, decoded into a T: all of them or up to Limit,
// page by page as the loop needs them. Without OrderBy they are ordered by id.
//
//	for item, err := range client.Query[Order](ctx, orders,
//		client.Where("doc.total > params.min", map[string]any{"min": 100}),
//		client.OrderBy("/total", client.Desc)) { … }
//
// Documents that change during the loop may be missed or yielded twice, all others are
// yielded once. A page that is refused with ErrTooLarge, since the server would scan too
// much for it, is requested again in smaller ones.
//
// A document that does not decode into a T is yielded as an item without a Value and a
// *DecodeError, and the loop may go on; json.RawMessage accepts every document unchanged.
// Any other error is the last value; it is ctx's error once ctx is done. With Select an
// item may lack ID, ETag and Modified.
func Query[T any](ctx context.Context, coll *Collection, opts ...QueryOption) iter.Seq2[Item[T], error] {
	return func(yield func(Item[T], error) bool) {
		for reply, err := range pages(ctx, coll, opts) {
			if err != nil {
				yield(Item[T]{}, err)
				return
			}
			for _, document := range reply.Documents {
				if done := ctx.Err(); done != nil {
					yield(Item[T]{}, done)
					return
				}
				if !yield(itemOf[T](reply.about(document), 0)) {
					return
				}
			}
		}
	}
}

// Page is one page of the result of a query.
type Page[T any] struct {
	Items []Item[T]
	// Cursor is the start of the next page, for FromCursor; empty on the last page.
	Cursor string
}

// QueryPages is Query page by page, for callers that store the cursor.
//
// If documents do not decode into a T, their page has the others and comes with a
// *DecodeError for the first of them, and the loop may go on.
func QueryPages[T any](ctx context.Context, coll *Collection, opts ...QueryOption) iter.Seq2[Page[T], error] {
	return func(yield func(Page[T], error) bool) {
		for reply, err := range pages(ctx, coll, opts) {
			if !yield(pageOf[T](reply, err)) {
				return
			}
		}
	}
}

// pages yields the replies of a query. An error is the last value.
func pages(ctx context.Context, coll *Collection, opts []QueryOption) iter.Seq2[*queryReply, error] {
	return func(yield func(*queryReply, error) bool) {
		q, err := newQuery(opts)
		if err != nil {
			yield(nil, err)
			return
		}
		pace, remaining := newPace(q.pageSize()), q.limit
		for {
			ask := pace.size
			if q.limit > 0 {
				ask = min(ask, remaining)
			}
			reply, err := q.ask(ctx, coll, ask)
			if errors.Is(err, errPageTooLarge) && ask > 1 {
				pace.slower(ask)
				continue
			}
			if err != nil {
				if done := ctx.Err(); done != nil {
					err = done // once ctx is done, it is the cause of any other error
				}
				yield(nil, err)
				return
			}
			remaining -= len(reply.Documents)
			if !yield(reply, nil) || reply.Cursor == "" || q.limit > 0 && remaining <= 0 {
				return
			}
			q.request.Cursor = reply.Cursor
			pace.faster()
		}
	}
}

// QueryPage requests one page, the first or that at FromCursor. The last page has an
// empty cursor; one with fewer documents than PageSize need not be the last.
//
// It fails with ErrTooLarge if the server would scan too much for the page, which a smaller
// PageSize may avoid, or if a document alone is too large for a reply: use Select. Documents
// that do not decode into a T are an error as in QueryPages.
func QueryPage[T any](ctx context.Context, coll *Collection, opts ...QueryOption) (Page[T], error) {
	q, err := newQuery(opts)
	if err != nil {
		return Page[T]{}, err
	}
	return pageOf[T](q.ask(ctx, coll, q.pageSize()))
}

// Count returns the number of documents that match Where, IDPrefix, Held and Due. Of the
// other options it uses only Explain and RequestOptions.
func Count(ctx context.Context, coll *Collection, opts ...QueryOption) (int64, error) {
	q, err := newQuery(opts)
	if err != nil {
		return 0, err
	}
	q.request = queryRequest{Where: q.request.Where, Params: q.request.Params, IDPrefix: q.request.IDPrefix, Held: q.request.Held, Due: q.request.Due, Count: true}
	reply, err := q.ask(ctx, coll, 0)
	if err != nil {
		return 0, err
	}
	if reply.Count == nil {
		return 0, reply.about(nil).because(garbled(errors.New("it has no count")))
	}
	return *reply.Count, nil
}

// Plan describes how the server answered a query.
type Plan struct {
	Index    string   `json:"index"`              // path of the index used, empty for none
	Scanned  int64    `json:"scanned"`            // documents read
	Returned int64    `json:"returned"`           // documents that matched
	Behind   *uint64  `json:"behind,omitempty"`   // log sequences that a lazy index is behind, nil for others
	Building []string `json:"building,omitempty"` // paths whose index is still being built
}

// add adds the plan of the next page to p.
func (p *Plan) add(next Plan) {
	next.Scanned += p.Scanned
	next.Returned += p.Returned
	*p = next
}

// errPageTooLarge is the server's 413 for a page. The client's own 413 is for a request,
// which a smaller page does not shrink.
var errPageTooLarge = errors.New("page too large")

type queryReply struct {
	collection string
	seq        uint64
	Documents  []json.RawMessage `json:"documents"`
	Cursor     string            `json:"cursor"`
	Count      *int64            `json:"count"`
	Plan       Plan              `json:"plan"`
}

// ask requests a page of limit documents, or a count with 0.
func (q *query) ask(ctx context.Context, coll *Collection, limit int) (*queryReply, error) {
	q.request.Limit = limit
	q.request.Explain = q.plan != nil
	body, err := encode(q.request)
	if err != nil {
		return nil, err
	}
	answer, err := coll.client.Do(ctx, "query", coll.info.Name, "", body, q.opts...)
	if coded, ok := errors.AsType[*Error](err); ok && answer != nil && answer.Status == ErrTooLarge.Code {
		return nil, &failure{coded: coded, cause: errPageTooLarge}
	}
	if err != nil {
		return nil, err
	}
	reply := &queryReply{collection: coll.info.Name, seq: answer.Seq}
	if err := decodeReply(coll.info.Name, answer, reply); err != nil {
		return nil, err
	}
	if q.plan != nil {
		q.plan.add(reply.Plan)
	}
	return reply, nil
}

// about returns what is known of a document of the reply.
func (reply *queryReply) about(document []byte) DecodeError {
	return DecodeError{Collection: reply.collection, Seq: reply.seq, Body: document}
}

// pageOf decodes a reply. Its error is that of the first document that does not decode.
func pageOf[T any](reply *queryReply, err error) (Page[T], error) {
	if err != nil {
		return Page[T]{}, err
	}
	page := Page[T]{Items: make([]Item[T], 0, len(reply.Documents)), Cursor: reply.Cursor}
	for _, document := range reply.Documents {
		item, fault := itemOf[T](reply.about(document), 0)
		if fault == nil {
			page.Items = append(page.Items, item)
		} else if err == nil {
			err = fault
		}
	}
	return page, err
}

// goodPages is the number of pages after which Query tries a larger page size, so that a
// few large documents do not slow down all later pages.
const goodPages = 4

// pace adapts the page size.
type pace struct{ size, most, good int }

func newPace(most int) pace { return pace{size: most, most: most} }

// slower shrinks the page size, after a page of size documents was too large.
func (p *pace) slower(size int) { p.size, p.good = size/2, 0 }

// faster counts a page that was not too large, and doubles the size every goodPages.
func (p *pace) faster() {
	if p.good++; p.good >= goodPages {
		p.size, p.good = min(2*p.size, p.most), 0
	}
}
