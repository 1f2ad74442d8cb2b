package lapsetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/schema"
)

// DB is a database in memory. It is an offline.Local under a lock, in the words of package
// client; mu makes it safe for concurrent use. Its methods fail the test, from the
// goroutine that calls them: call them in the test's own, as Fatalf asks.
type DB struct {
	t failer

	mu    sync.Mutex
	local *offline.Local
}

// failer is the subset of testing.TB that a DB uses.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Option configures a DB.
type Option func(*options) error

type options struct{ at time.Time }

// At sets the initial time, as in RFC 3339; the default is 2000-01-01T00:00:00Z.
func At(moment string) Option {
	return func(o *options) error {
		at, err := schema.ParseTime(moment)
		if err != nil {
			return fmt.Errorf("At(%q): give a time like 2026-01-01T00:00:00Z", moment)
		}
		return AtTime(at)(o)
	}
}

// AtTime is At for a time.Time, rounded down to milliseconds.
func AtTime(at time.Time) Option {
	return func(o *options) error {
		if at.UnixMilli() < 0 {
			return fmt.Errorf("the time is %s: times before 1970 are not simulated", at.UTC().Format(time.RFC3339Nano))
		}
		o.at = at
		return nil
	}
}

// New returns an empty database, which is closed at the end of the test.
func New(t testing.TB, opts ...Option) *DB {
	t.Helper()
	db := open(t, opts)
	t.Cleanup(db.Close)
	return db
}

// Open is New without a test, for examples and programs: it panics where a test would
// fail. Close the database when done.
func Open(opts ...Option) *DB { return open(panicker{}, opts) }

type panicker struct{}

func (panicker) Helper()                           {}
func (panicker) Fatalf(format string, args ...any) { panic(fmt.Sprintf("lapsetest: "+format, args...)) }

// open returns a database at its initial time.
func open(t failer, opts []Option) *DB {
	t.Helper()
	o := options{at: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			t.Fatalf("%v", err)
		}
	}
	local, err := offline.NewLocal(o.at.UnixMilli())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &DB{t: t, local: local}
}

// Close frees the memory of a database made by Open. It may be called twice.
func (db *DB) Close() {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.local == nil {
		return
	}
	if err := db.local.Close(); err != nil {
		db.t.Fatalf("%v", err)
	}
	db.local = nil
}

// use calls with under the lock. It fails the test if with returns an error or the
// database is closed.
func (db *DB) use(with func(*offline.Local) error) {
	db.t.Helper()
	if err := db.try(with); err != nil {
		db.t.Fatalf("%v", err)
	}
}

// try calls with under the lock, or fails if the database is closed.
func (db *DB) try(with func(*offline.Local) error) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.local == nil {
		return fmt.Errorf("the database is closed")
	}
	return with(db.local)
}

// Now returns the time, in UTC.
func (db *DB) Now() (now time.Time) {
	db.t.Helper()
	db.use(func(l *offline.Local) error { now = time.UnixMilli(l.Now()).UTC(); return nil })
	return now
}

// Advance moves the clock by a duration, rounded down to milliseconds. Each document that
// comes due expires at its second.
func (db *DB) Advance(d time.Duration) {
	db.t.Helper()
	db.use(func(l *offline.Local) error { return l.Advance(l.Now() + d.Milliseconds()) })
}

// AdvanceTo is Advance to a moment, which must not be in the past.
func (db *DB) AdvanceTo(moment time.Time) {
	db.t.Helper()
	db.use(func(l *offline.Local) error { return l.Advance(moment.UnixMilli()) })
}

// Finish moves the clock until every document that can expire has expired.
func (db *DB) Finish() {
	db.t.Helper()
	db.use((*offline.Local).Finish)
}

// Do sends one request, as client.Client.Do: op is the head of its subject
// ("document.upsert", "collection.list", "status"); collection and id are empty if the
// op has none. body is JSON text (string, []byte or json.RawMessage), a value to
// encode as JSON, or nil.
//
// For an error reply it returns both, the Reply with its Status and the coded error, for
// errors.Is with those of package client.
func (db *DB) Do(op, collection, id string, body any, opts ...client.WriteOption) (*client.Reply, error) {
	db.t.Helper()
	tail, text, header, err := request(op, collection, id, body, opts)
	if err != nil {
		return nil, err
	}
	var o machine.Outcome
	db.use(func(l *offline.Local) (err error) {
		o, err = l.Request(tail, header, text)
		return err
	})
	reply := &client.Reply{Status: o.Code, Seq: o.Seq, Body: o.Body}
	lifetime := nats.Header{}
	o.Lifetime.Headers(lifetime.Set)
	reply.Lifetime = client.LifetimeOf(lifetime)
	if o.Fault != nil {
		reply.Body = o.Fault.AppendJSON(nil)
		return reply, o.Fault
	}
	return reply, nil
}

// Submit makes a write as client.Client.Submit does, without an outcome: a refused one
// becomes a MutationRejected. It returns the Cause of the resulting event.
func (db *DB) Submit(op, collection, id string, body any, opts ...client.WriteOption) (cause uint64) {
	db.t.Helper()
	if schema.ParseOp(op) == schema.NoOp {
		db.t.Fatalf("%q is not a write: use document.create, replace, upsert, patch or delete, or collection.create, replace or delete", op)
	}
	tail, text, header, err := request(op, collection, id, body, opts)
	if err != nil {
		db.t.Fatalf("%v", err)
	}
	db.use(func(l *offline.Local) (err error) {
		cause, err = l.Submit(tail, header, text)
		return err
	})
	return cause
}

// request builds a request for Local.
func request(op, collection, id string, body any, opts []client.WriteOption) (tail string, text []byte, header nats.Header, err error) {
	if text, err = encode(body); err != nil {
		return "", nil, nil, err
	}
	header = nats.Header{}
	if text, err = client.ApplyWrite(header, text, opts...); err != nil {
		return "", nil, nil, err
	}
	tail = op
	if collection != "" {
		name, err := schema.ParseCollectionName(collection)
		if err != nil {
			return "", nil, nil, err
		}
		tail += "." + string(name)
	}
	if id != "" {
		document, err := schema.ParseDocumentID(id)
		if err != nil {
			return "", nil, nil, err
		}
		tail += "." + document.Token()
	}
	return tail, text, header, nil
}
