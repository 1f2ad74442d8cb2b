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
// yielded once. A page that is too large for a reply is requested again in smaller ones.
//
// An error is the last value that it yields; it is ctx's error once ctx is done. A
// document that does not decode into a T is an error; json.RawMessage takes every
// document unchanged. With Select an item may lack ID, ETag and Modified.
func Query[T any](ctx context.Context, coll *Collection, opts ...QueryOption) iter.Seq2[Item[T], error] {
	return func(yield func(Item[T], error) bool) {
		for page, err := range QueryPages[T](ctx, coll, opts...) {
			for _, item := range page.Items {
				if done := ctx.Err(); done != nil {
					yield(Item[T]{}, done)
					return
				}
				if !yield(item, nil) {
					return
				}
			}
			if err != nil {
				yield(Item[T]{}, err)
				return
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
// If a document does not decode into a T, its page comes with an error and the documents
// before it.
func QueryPages[T any](ctx context.Context, coll *Collection, opts ...QueryOption) iter.Seq2[Page[T], error] {
	return func(yield func(Page[T], error) bool) {
		q, err := newQuery(opts)
		if err != nil {
			yield(Page[T]{}, err)
			return
		}
		pace, left := newPace(q.pageSize()), q.limit
		for {
			ask := pace.size
			if q.limit > 0 {
				ask = min(ask, left)
			}
			reply, err := q.ask(ctx, coll, ask)
			if errors.Is(err, errPageTooLarge) && ask > 1 {
				pace.slower(ask)
				continue
			}
			page, err := pageOf[T](reply, err)
			if done := ctx.Err(); err != nil && done != nil {
				err = done // once ctx is done, it is the cause of any other error
			}
			left -= len(page.Items)
			if !yield(page, err) || err != nil || page.Cursor == "" || q.limit > 0 && left <= 0 {
				return
			}
			q.request.Cursor = page.Cursor
			pace.faster()
		}
	}
}

// QueryPage requests one page, the first or that at FromCursor. The last page has an
// empty cursor; one with fewer documents than PageSize need not be the last.
//
// It fails with ErrTooLarge if the page is too large: use a smaller PageSize.
func QueryPage[T any](ctx context.Context, coll *Collection, opts ...QueryOption) (Page[T], error) {
	q, err := newQuery(opts)
	if err != nil {
		return Page[T]{}, err
	}
	return pageOf[T](q.ask(ctx, coll, q.pageSize()))
}

// Count returns the number of documents that match Where, Held and Due. Of the other
// options it uses only Explain and RequestOptions.
func Count(ctx context.Context, coll *Collection, opts ...QueryOption) (int64, error) {
	q, err := newQuery(opts)
	if err != nil {
		return 0, err
	}
	q.request = queryRequest{Where: q.request.Where, Params: q.request.Params, Held: q.request.Held, Due: q.request.Due, Count: true}
	reply, err := q.ask(ctx, coll, 0)
	if err != nil {
		return 0, err
	}
	if reply.Count == nil {
		return 0, badReply(errors.New("it has no count"))
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

// errPageTooLarge is the server's 413 for a reply. The client's own 413 is for a request,
// which a smaller page does not shrink.
var errPageTooLarge = errors.New("page too large")

type queryReply struct {
	Documents []json.RawMessage `json:"documents"`
	Cursor    string            `json:"cursor"`
	Count     *int64            `json:"count"`
	Plan      Plan              `json:"plan"`
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
	reply := &queryReply{}
	if err := json.Unmarshal(answer.Body, reply); err != nil {
		return nil, badReply(err)
	}
	if q.plan != nil {
		q.plan.add(reply.Plan)
	}
	return reply, nil
}

func pageOf[T any](reply *queryReply, err error) (Page[T], error) {
	if err != nil {
		return Page[T]{}, err
	}
	page := Page[T]{Items: make([]Item[T], 0, len(reply.Documents)), Cursor: reply.Cursor}
	for _, document := range reply.Documents {
		item, err := itemOf[T](0, document)
		if err != nil {
			return page, err
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// goodPages is the number of pages after which Query tries a larger page size, so that a
// few large documents do not slow down all later pages.
const goodPages = 4

// pace adapts the page size.
type pace struct{ size, most, good int }

func newPace(most int) pace { return pace{size: most, most: most} }

// slower shrinks the page size, after a page of asked documents was too large.
func (p *pace) slower(asked int) { p.size, p.good = asked/2, 0 }

// faster counts a page that was not too large, and doubles the size every goodPages.
func (p *pace) faster() {
	if p.good++; p.good >= goodPages {
		p.size, p.good = min(2*p.size, p.most), 0
	}
}
