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

// DB is a database in memory.
type DB struct {
	t failer

	mu    sync.Mutex
	local *offline.Local
}

// failer is what a DB needs of a test.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Option configures a DB.
type Option func(*options) error

type options struct{ at time.Time }

// At says, as in RFC 3339, what the time is at first; without it, midnight UTC
// of 2000-01-01.
func At(moment string) Option {
	return func(o *options) error {
		at, err := time.Parse(time.RFC3339Nano, moment)
		if err != nil {
			return fmt.Errorf("At(%q): give a time like 2026-01-01T00:00:00Z", moment)
		}
		return AtTime(at)(o)
	}
}

// AtTime is At for a time.Time, of which milliseconds count.
func AtTime(at time.Time) Option {
	return func(o *options) error {
		if at.UnixMilli() < 0 {
			return fmt.Errorf("the time is %s: times before 1970 are not simulated", at.UTC().Format(time.RFC3339Nano))
		}
		o.at = at
		return nil
	}
}

// New returns an empty database, which the test's end closes.
func New(t testing.TB, opts ...Option) *DB {
	t.Helper()
	db := open(t, opts)
	t.Cleanup(db.Close)
	return db
}

// Open is New without a test, for examples and programs: where a test would
// fail, it panics. Close the database when done.
func Open(opts ...Option) *DB { return open(panicker{}, opts) }

type panicker struct{}

func (panicker) Helper()                           {}
func (panicker) Fatalf(format string, args ...any) { panic(fmt.Sprintf("lapsetest: "+format, args...)) }

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

// use calls with while nobody else uses the database, and fails the test if it
// returns an error or the database is closed.
func (db *DB) use(with func(*offline.Local) error) {
	db.t.Helper()
	if err := db.try(with); err != nil {
		db.t.Fatalf("%v", err)
	}
}

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

// Advance lets time pass: everything that becomes due until then expires, each
// document at its second. Milliseconds count, what is below is dropped.
func (db *DB) Advance(d time.Duration) {
	db.t.Helper()
	db.use(func(l *offline.Local) error { return l.Advance(l.Now() + d.Milliseconds()) })
}

// AdvanceTo is Advance up to a moment, which may not be over.
func (db *DB) AdvanceTo(moment time.Time) {
	db.t.Helper()
	db.use(func(l *offline.Local) error { return l.Advance(moment.UnixMilli()) })
}

// Finish lets time pass until nothing is left that expires, and maybe a little
// more.
func (db *DB) Finish() {
	db.t.Helper()
	db.use((*offline.Local).Finish)
}

// Do sends one request, as client.Client.Do: op is the head of its subject
// ("document.upsert", "collection.list", "status"), collection and id are left
// empty where the op takes none. body is JSON text (string, []byte or
// json.RawMessage), a value that is encoded as JSON, or nil.
//
// An answer that is an error comes back as both: a Reply with its Status, and
// the coded error, for errors.Is with those of package client.
func (db *DB) Do(op, collection, id string, body any, opts ...client.RequestOption) (*client.Reply, error) {
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
	if o.Fault != nil {
		reply.Body = o.Fault.AppendJSON(nil)
		return reply, o.Fault
	}
	return reply, nil
}

// Submit hands a change over as a JetStream message does, whose sender waits for
// no outcome: what is refused becomes a MutationRejected. It returns the Cause
// of the event that results.
func (db *DB) Submit(op, collection, id string, body any, opts ...client.RequestOption) (cause uint64) {
	db.t.Helper()
	if schema.ParseOp(op) == schema.NoOp {
		db.t.Fatalf("%q changes nothing: use document.create, replace, upsert, patch or delete, or collection.create, replace or delete", op)
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

// request makes what Local takes.
func request(op, collection, id string, body any, opts []client.RequestOption) (tail string, text []byte, header nats.Header, err error) {
	if text, err = encode(body); err != nil {
		return "", nil, nil, err
	}
	header = nats.Header{}
	for _, opt := range opts {
		opt.Apply(header)
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
