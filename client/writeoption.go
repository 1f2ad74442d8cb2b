package client

import (
	"math"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// WriteOption is an option of a write: TTL, NeverExpire, ExpireAt, KeepDeadline, MinAge, or
// a RequestOption such as IfMatch.
type WriteOption interface{ changeWrite(*write) }

type write struct {
	opts   []RequestOption
	ttl    schema.TTL
	minAge int32
	err    error // of the first invalid option
}

func (opt RequestOption) changeWrite(w *write) { w.opts = append(w.opts, opt) }

// TTLOption is TTL or NeverExpire. It is an option of a write and of an operation in a
// batch.
type TTLOption time.Duration

// NeverExpire lets the document live until it is deleted, whatever the collection's
// default.
const NeverExpire TTLOption = math.MinInt64

// TTL sets the time to live of the document, in whole seconds, counted from this write. It
// replaces a member ttl of the value. Without it the value's ttl applies, or the
// collection's default.
func TTL(d time.Duration) TTLOption { return TTLOption(d) }

func (opt TTLOption) seconds() (schema.TTL, error) {
	if opt == NeverExpire {
		return schema.Never, nil
	}
	d := time.Duration(opt)
	if d < time.Second || d%time.Second != 0 || d/time.Second > schema.MaxTTL {
		return schema.Inherit, ErrBadTTL.With("TTL %v: use whole seconds from 1 to %d, or NeverExpire", d, schema.MaxTTL)
	}
	return schema.TTL(d / time.Second), nil
}

func (opt TTLOption) changeWrite(w *write) {
	ttl, err := opt.seconds()
	if err != nil && w.err == nil {
		w.err = err
	}
	w.ttl = ttl
}

// EndOption is ExpireAt or KeepDeadline. It is an option of a write of a document, except
// Touch, and of an operation in a batch.
type EndOption struct {
	expireAt     *int64 // unix seconds
	keepDeadline bool
}

// ExpireAt makes the document expire at t, rounded up to a second. The server computes the
// ttl, so no clock of a client matters: ErrBadTTL if t is not after the write. A later write
// or Touch without it counts that ttl again.
func ExpireAt(t time.Time) EndOption {
	return EndOption{expireAt: new(secondFrom(t))}
}

// secondFrom returns the first whole second that is not before t, in unix seconds.
func secondFrom(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// KeepDeadline lets the document that a Replace, Upsert or Patch changes keep its deadline.
func KeepDeadline() EndOption { return EndOption{keepDeadline: true} }

func (opt EndOption) changeWrite(w *write) { w.opts = append(w.opts, opt.Request()) }

// Request returns the option for Do.
func (opt EndOption) Request() RequestOption {
	return func(h headers) {
		if opt.expireAt != nil {
			h.Set(schema.HeaderExpireAt, strconv.FormatInt(*opt.expireAt, 10))
		}
		if opt.keepDeadline {
			h.Set(schema.HeaderKeepDeadline, "true")
		}
	}
}

// MinAgeOption is MinAge. It is an option of Touch and GetAndTouch, alone and in a batch.
type MinAgeOption time.Duration

// MinAge lets a Touch renew the document only if its last modification is at least d ago,
// in whole seconds. Otherwise the document stays as it is, and the log has no event.
func MinAge(d time.Duration) MinAgeOption { return MinAgeOption(d) }

func (opt MinAgeOption) seconds() (int32, error) {
	d := time.Duration(opt)
	if d < time.Second || d%time.Second != 0 || d/time.Second > schema.MaxTTL {
		return 0, ErrBadRequest.With("MinAge %v: use whole seconds from 1 to %d", d, schema.MaxTTL)
	}
	return int32(d / time.Second), nil
}

func (opt MinAgeOption) changeWrite(w *write) {
	seconds, err := opt.seconds()
	if err != nil && w.err == nil {
		w.err = err
	}
	w.minAge = seconds
}

func newWrite(opts []WriteOption) (write, error) {
	var w write
	for _, opt := range opts {
		opt.changeWrite(&w)
	}
	return w, w.err
}

// body returns an encoded value with the options ttl and minAge applied.
func (w *write) body(value []byte) []byte {
	if w.minAge != 0 {
		if len(value) == 0 {
			value = []byte("{}")
		}
		value = schema.WithMinAge(value, w.minAge)
	}
	if w.ttl != schema.Inherit {
		value = schema.WithTTL(value, w.ttl)
	}
	return value
}

// ApplyWrite applies options to the headers and body of a write that the caller sends
// itself, and returns the body.
func ApplyWrite(header nats.Header, body []byte, opts ...WriteOption) ([]byte, error) {
	w, err := newWrite(opts)
	if err != nil {
		return nil, err
	}
	for _, opt := range w.opts {
		opt.Apply(header)
	}
	return w.body(body), nil
}
