package client

import (
	"math"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// WriteOption is an option of a write: TTL, NeverExpire, or a RequestOption such as
// IfMatch.
type WriteOption interface{ changeWrite(*write) }

type write struct {
	opts []RequestOption
	ttl  schema.TTL
	err  error // of the first invalid option
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

func newWrite(opts []WriteOption) (write, error) {
	var w write
	for _, opt := range opts {
		opt.changeWrite(&w)
	}
	return w, w.err
}

// body returns an encoded value with the ttl option applied.
func (w *write) body(value []byte) []byte {
	if w.ttl == schema.Inherit {
		return value
	}
	return schema.WithTTL(value, w.ttl)
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
