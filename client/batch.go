package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// MaxBatch is the maximum number of operations in a batch.
const MaxBatch = 1000

// Batch collects operations on one collection that are sent together:
//
//	results, err := coll.Batch().Upsert("a", order).Delete("b").Get("c").Run(ctx)
type Batch struct {
	coll       *Collection
	operations []operation
	err        error // of the first invalid value or option
}

// operation is one operation as the request has it; Body is nil for none.
type operation struct {
	Op      string
	ID      string
	Body    json.RawMessage
	IfMatch string

	ExpireAt     *int64 // unix seconds
	KeepDeadline bool
}

// OperationOption is an option of one operation in a batch: OnlyIfMatch, TTL, NeverExpire,
// ExpireAt, KeepDeadline or MinAge.
type OperationOption interface {
	changeOperation(*operation) error
}

type onlyIfMatch string

func (etag onlyIfMatch) changeOperation(op *operation) error {
	op.IfMatch = string(etag)
	return nil
}

// OnlyIfMatch is IfMatch for an operation of a batch.
func OnlyIfMatch(etag string) OperationOption { return onlyIfMatch(etag) }

func (opt TTLOption) changeOperation(op *operation) error {
	ttl, err := opt.seconds()
	if err == nil {
		op.Body = schema.WithTTL(op.Body, ttl)
	}
	return err
}

func (opt EndOption) changeOperation(op *operation) error {
	if opt.expireAt != nil {
		op.ExpireAt = opt.expireAt
	}
	op.KeepDeadline = op.KeepDeadline || opt.keepDeadline
	return nil
}

func (opt MinAgeOption) changeOperation(op *operation) error {
	seconds, err := opt.seconds()
	switch {
	case err != nil:
		return err
	case op.Op != "touch":
		return ErrBadRequest.With("MinAge is an option of Touch and GetAndTouch")
	case op.Body == nil:
		op.Body = json.RawMessage("{}")
	}
	op.Body = schema.WithMinAge(op.Body, seconds)
	return nil
}

// Batch returns an empty batch.
func (coll *Collection) Batch() *Batch { return &Batch{coll: coll} }

// Len returns the number of operations.
func (b *Batch) Len() int { return len(b.operations) }

// Get adds a read, which sees the effects of the operations before it.
func (b *Batch) Get(id string) *Batch { return b.add("get", id, nil, nil) }

// Create adds a Create.
func (b *Batch) Create(id string, value any, opts ...OperationOption) *Batch {
	return b.add("create", id, value, opts)
}

// Upsert adds an Upsert.
func (b *Batch) Upsert(id string, value any, opts ...OperationOption) *Batch {
	return b.add("upsert", id, value, opts)
}

// Replace adds a Replace.
func (b *Batch) Replace(id string, value any, opts ...OperationOption) *Batch {
	return b.add("replace", id, value, opts)
}

// Patch adds a Patch.
func (b *Batch) Patch(id string, patch any, opts ...OperationOption) *Batch {
	return b.add("patch", id, patch, opts)
}

// Delete adds a Delete.
func (b *Batch) Delete(id string, opts ...OperationOption) *Batch {
	return b.add("delete", id, nil, opts)
}

// Touch adds a Touch. Its Result has no content.
func (b *Batch) Touch(id string, opts ...OperationOption) *Batch {
	return b.add("touch", id, nil, opts)
}

// GetAndTouch adds a GetAndTouch.
func (b *Batch) GetAndTouch(id string, opts ...OperationOption) *Batch {
	return b.add("touch", id, json.RawMessage(`{"content":true}`), opts)
}

// Restore adds a Restore.
func (b *Batch) Restore(id, version string, opts ...OperationOption) *Batch {
	return b.add("restore", id, restore{version}, opts)
}

// Hold adds a Hold. Its Result has no content, as that of Touch.
func (b *Batch) Hold(id, reason string, opts ...OperationOption) *Batch {
	return b.add("hold", id, hold{reason}, opts)
}

// Release adds a Release. Its Result has no content, as that of Touch.
func (b *Batch) Release(id string, opts ...OperationOption) *Batch {
	return b.add("release", id, nil, opts)
}

// add adds an operation. An error is kept until Run, so that calls can be chained; the
// first counts.
func (b *Batch) add(op, id string, value any, opts []OperationOption) *Batch {
	o := operation{Op: op, ID: id}
	if value != nil {
		body, err := encode(value)
		if err != nil && b.err == nil {
			b.err = err
		}
		o.Body = body
	}
	for _, opt := range opts {
		if err := opt.changeOperation(&o); err != nil && b.err == nil {
			b.err = err
		}
	}
	b.operations = append(b.operations, o)
	return b
}

// Result is the outcome of one operation.
type Result struct {
	Code int
	Body json.RawMessage // the document, nil after a delete or an error
	Err  error           // coded, nil if the operation succeeded

	Lifetime // of the live document that the result is about

	// Again: RunBatches has sent the operation again after an ErrTimeout, and the first time
	// may have applied it too. A Code of 200 may then be about a document that was new.
	Again bool

	gets  bool        // it answers a get
	about DecodeError // what Decode knows of the document
}

// Results are the outcomes of a batch, in the order of its operations.
type Results []Result

// Err returns the first error, or nil if all succeeded. For an atomic batch that failed
// it is the error of the operation that caused the failure.
func (results Results) Err() error {
	atomic := slices.ContainsFunc(results, func(r Result) bool { return errors.Is(r.Err, ErrFailedDependency) })
	for _, r := range results {
		// A read of a missing document does not fail the batch.
		if r.Err != nil && (!atomic || !r.gets && !errors.Is(r.Err, ErrFailedDependency)) {
			return r.Err
		}
	}
	return nil
}

// Decode returns the document of a result, or its error. A *DecodeError says that the
// operation succeeded.
func Decode[T any](r Result) (Item[T], error) {
	if r.Err != nil || r.Body == nil {
		return Item[T]{}, r.Err
	}
	r.about.Body = r.Body
	item, err := itemOf[T](r.about, r.Code)
	item.Lifetime = r.Lifetime
	return item, err
}

// Run sends the batch. Each operation succeeds or fails on its own. Run fails only if the
// whole batch does; Results.Err returns the first error of an operation.
func (b *Batch) Run(ctx context.Context, opts ...RequestOption) (Results, error) {
	return b.run(ctx, false, opts)
}

// RunAtomic is Run, but applies all changes or none: if one is refused it has its own
// error, and all others have ErrFailedDependency.
func (b *Batch) RunAtomic(ctx context.Context, opts ...RequestOption) (Results, error) {
	return b.run(ctx, true, opts)
}

// run sends the batch as one request, and checks that there is a result for each operation.
func (b *Batch) run(ctx context.Context, atomic bool, opts []RequestOption) (Results, error) {
	if b.err != nil {
		return nil, b.err
	}
	body, err := b.encode(atomic)
	if err != nil {
		return nil, err
	}
	reply, err := b.coll.client.Do(ctx, "batch", b.coll.info.Name, "", body, opts...)
	if err != nil {
		return nil, err
	}
	results, err := readResults(reply.Body)
	if n := len(results); err == nil && n != len(b.operations) {
		err = fmt.Errorf("it has %d results for %d operations", n, len(b.operations))
	}
	if err != nil {
		return nil, unreadable(b.coll.info.Name, "", reply, err)
	}
	for i := range results {
		r, op := &results[i], &b.operations[i]
		r.gets = op.Op == "get"
		r.about = DecodeError{Collection: b.coll.info.Name, ID: op.ID, Seq: reply.Seq}
	}
	return results, nil
}

// encode returns the body of the request. It is written by hand, since encoding/json reads
// the documents three times.
func (b *Batch) encode(atomic bool) ([]byte, error) {
	body := append(make([]byte, 0, 64*len(b.operations)+b.size()), `{"operations":[`...)
	for i := range b.operations {
		op := &b.operations[i]
		if i > 0 {
			body = append(body, ',')
		}
		body = schema.AppendString(append(body, `{"op":`...), op.Op)
		body = schema.AppendString(append(body, `,"id":`...), op.ID)
		if len(op.Body) > 0 {
			if err := schema.CheckEnvelope(op.Body); err != nil {
				return nil, ErrBadRequest.With("the value of operation %d, %s %q, is not JSON: %v", i+1, op.Op, op.ID, err)
			}
			body = append(append(body, `,"body":`...), op.Body...)
		}
		if op.IfMatch != "" {
			body = schema.AppendString(append(body, `,"ifMatch":`...), op.IfMatch)
		}
		if op.ExpireAt != nil {
			body = strconv.AppendInt(append(body, `,"expireAt":`...), *op.ExpireAt, 10)
		}
		if op.KeepDeadline {
			body = append(body, `,"keepDeadline":true`...)
		}
		body = append(body, '}')
	}
	return fmt.Appendf(body, `],"atomic":%t}`, atomic), nil
}

// readResults reads the reply to a batch. The results keep its memory.
func readResults(body []byte) (results Results, err error) {
	if err := schema.CheckEnvelope(body); err != nil {
		return nil, err
	}
	values.Value(body).At([]string{"results"}).Elements(func(result values.Value) bool {
		var r Result
		err = r.read(result)
		results = append(results, r)
		return err == nil
	})
	return results, err
}

// UnmarshalJSON decodes the result of an operation in a reply.
func (r *Result) UnmarshalJSON(data []byte) error { return r.read(bytes.Clone(data)) }

// read reads a result without encoding/json, as readResults does. Unknown members are
// ignored: a newer server may send more.
func (r *Result) read(result values.Value) (err error) {
	*r = Result{}
	var l schema.Lifetime
	result.Members(func(name []byte, value values.Value) bool {
		switch string(name) {
		case "code":
			r.Code, err = strconv.Atoi(string(value))
		case "body":
			r.Body = json.RawMessage(value)
		case "deadline":
			l.Deadline.At, err = strconv.ParseInt(string(value), 10, 64)
		case "rule":
			l.Deadline.Rule = schema.ParseRule(string(value.Text()))
		case "hold":
			l.Held, l.Reason = true, string(value.Text())
		}
		return err == nil
	})
	r.Lifetime = lifetimeOf(l)
	if r.Code >= 400 {
		r.Err, r.Body = parseError(r.Code, r.Body, ""), nil
	}
	return err
}
