package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// What a process is to the lease:
//
//	           Acquire, Await            Release: the key is deleted
//	waiting ───────────────────► holder ─────────────────────────────► waiting
//	   ▲                          │  ▲ │
//	   │       Keep: each third   └──┘ │  another revision (ErrHeld), or
//	   │       of the TTL              │  no renewal for the TTL (ErrLeaseLost)
//	   └───────────────────────────────┘
//
// Who may change what: one goroutine at a time calls Acquire, Await, Keep and Release, in that
// order, and owns revision, heldBack and other. until is atomic: the writer reads it by Held and
// Expire.
//
// What may be in flight: one update of the key, which names the revision that it replaces. If its
// acknowledgement is lost, the process reads the key: a value with its own term is its lease, at
// whatever revision.
//
// Why it is safe:
//
//   - The holder counts the TTL from when it sent an update, NATS from when it stored it, and a
//     standby from when it first read it (expired.go), each by a clock that goes on while the
//     machine sleeps. So the holder stops first.
//   - Of two that take an expired lease, one has the wrong revision.
//   - An append needs no lease: the fence refuses an earlier writer's. What has no event, as a
//     refusal, is no append: the writer replies it only while Held.
//   - A released lease may be for one successor. Others wait for holdBack, and no longer: it may
//     have died.

// Lease elects the writer: the holder is the value of a key that expires unless it
// is renewed. It only keeps processes from competing: the log's fence decides who
// can append, so a lost or deleted lease, or one with two holders, does no harm.
//
// Existing libraries for elections on NATS poll, need 5 s and more, and have no
// hand-over.
type Lease struct {
	js        jetstream.JetStream
	db        schema.DatabaseName
	ttl       time.Duration
	replicas  int
	mine      holder
	elapsed   func() time.Duration
	reconnect func()

	heldBack time.Duration // until when another process may take the lease, as elapsed

	revision uint64       // of the key, while the lease is held
	until    atomic.Int64 // earliest expiry of the lease, as elapsed in ns
	other    observed     // the lease of another process
}

// holder is the value of the key.
type holder struct {
	Node string `json:"node"` // the same over restarts of a process
	Host string `json:"host"`
	Term string `json:"term"` // new for each start

	// Identity of the directory with the process's files: a copy has the same node.
	Dir string `json:"dir,omitempty"`
}

func (h holder) valid() bool { return h.Node != "" && h.Term != "" }

const (
	// key is the lease's key in its bucket.
	key = "writer"

	renewals   = 3                // per TTL
	leaveAfter = 2                // TTLs without a reply of JetStream after which a standby tries another server
	maxLeave   = 8 * leaveAfter   // the same after repeated attempts: each interrupts reads
	markerTTL  = 10 * time.Minute // of JetStream's delete marker
	minPoll    = 50 * time.Millisecond
)

// Headers of a key that is deleted, as of NATS KV, and of a lease that is reserved for one
// process.
const (
	operationHeader = "KV-Operation"
	operationDelete = "DEL"
	successorHeader = "Lapse-For"
)

func (l *Lease) bucket() string  { return l.db.LeaseBucket() }
func (l *Lease) stream() string  { return l.db.LeaseStream() }
func (l *Lease) subject() string { return "$KV." + l.bucket() + "." + key }

// Config configures a Lease.
type Config struct {
	Database schema.DatabaseName
	TTL      time.Duration        // whole seconds
	Replicas int                  // of the bucket, if it is created
	Node     string               // name of the process, the same over restarts
	Dir      string               // identity of the directory that only this process uses now; "" if unknown
	Elapsed  func() time.Duration // a monotonic clock
	Leave    func()               // moves the process's connections to other NATS servers
}

// New returns a lease that is not held yet.
func New(js jetstream.JetStream, c Config) *Lease {
	host, _ := os.Hostname() // informative
	return &Lease{js: js, db: c.Database, ttl: c.TTL, replicas: c.Replicas, elapsed: c.Elapsed, reconnect: c.Leave,
		mine: holder{Node: c.Node, Host: host, Term: rand.Text(), Dir: c.Dir}}
}

// ErrHeld means that another process holds the lease.
var ErrHeld = errors.New("another lapse has the lease")

// ErrLeaseLost means that the lease may have expired before it was renewed.
var ErrLeaseLost = errors.New("the lease could not be renewed")

func readHolder(value []byte) (h holder, err error) {
	if err := json.Unmarshal(value, &h); err != nil || !h.valid() {
		return h, fmt.Errorf("its key %s is %.60q", key, value)
	}
	return h, nil
}

// Holder returns the id of the process that has the lease of a database, "" for none.
func Holder(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName) (string, error) {
	kv, err := js.KeyValue(ctx, db.LeaseBucket())
	if err == nil {
		entry, getErr := kv.Get(ctx, key)
		if getErr == nil {
			h, err := readHolder(entry.Value())
			return h.Node, err
		}
		err = getErr
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		err = nil
	}
	return "", err
}

// open opens the bucket, or creates it if there is none.
func (l *Lease) open(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := l.js.KeyValue(ctx, l.bucket())
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	kv, err = l.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:         l.bucket(),
		Description:    "lapse: who writes database " + string(l.db),
		History:        1,
		Replicas:       max(l.replicas, 1),
		LimitMarkerTTL: markerTTL,
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // by another process
		return l.js.KeyValue(ctx, l.bucket())
	}
	return kv, err
}

// Acquire takes the lease if it is free or has expired, or returns ErrHeld. It creates the
// bucket if there is none. back also takes the lease from an earlier process of this node
// and directory, which is dead, since this process has its files.
func (l *Lease) Acquire(ctx context.Context, back bool) error {
	kv, err := l.open(ctx)
	if err != nil {
		return err
	}
	return l.take(ctx, kv, back)
}

// take is Acquire in an existing bucket.
func (l *Lease) take(ctx context.Context, kv jetstream.KeyValue, back bool) error {
	began, expired := l.elapsed(), false
	entry, err := kv.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		l.revision, l.other = 0, observed{}
	case err != nil:
		return err
	default:
		has, err := readHolder(entry.Value())
		if err != nil {
			return fmt.Errorf("bucket %s: %w: remove it with `nats kv del %s`", l.bucket(), err, l.bucket())
		}
		before := has.Node == l.mine.Node && has.Host == l.mine.Host && has.Dir == l.mine.Dir
		if has.Term != l.mine.Term && !(back && before) {
			if expired, err = l.expired(ctx, entry.Revision()); err != nil {
				return err
			} else if !expired {
				return ErrHeld
			}
		}
		l.revision = entry.Revision()
	}
	value, err := json.Marshal(l.mine)
	if err != nil {
		return err
	}
	ctx, cancel := unstoppable(ctx)
	defer cancel()
	if l.revision == 0 {
		l.revision, err = kv.Create(ctx, key, value, jetstream.KeyTTL(l.ttl))
		if err == nil {
			l.hold(began)
		}
	} else {
		err = l.put(ctx, began, value)
	}
	switch {
	case taken(err):
		return ErrHeld
	case err != nil && expired:
		return fmt.Errorf("the lease has expired and NATS keeps it: %w", err)
	}
	return err
}

// unstoppable returns a context with the deadline of ctx that does not end when ctx is
// cancelled: nobody would release a lease that NATS stores after its holder has stopped
// waiting, and it would keep all others from writing until it expires.
func unstoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return context.WithCancel(ctx)
}

// renew extends the lease by its TTL, or returns ErrHeld if another process has it.
func (l *Lease) renew(ctx context.Context) error {
	value, err := json.Marshal(l.mine)
	if err != nil {
		return err
	}
	patience := min(l.ttl/renewals, l.remaining())
	try, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	if err = l.put(try, l.elapsed(), value); err == nil {
		return nil
	}
	// An earlier renewal may be stored although its acknowledgement was lost; or the
	// bucket was removed, and nothing replies.
	again, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	return l.Acquire(again, false)
}

// put replaces the value at Revision. It publishes the update itself, as KeyValue does,
// because KeyValue has no TTL for one.
func (l *Lease) put(ctx context.Context, began time.Duration, value []byte) error {
	ack, err := l.js.PublishMsg(ctx, &nats.Msg{Subject: l.subject(), Data: value},
		jetstream.WithExpectLastSequencePerSubject(l.revision), jetstream.WithMsgTTL(l.ttl), jetstream.WithRetryAttempts(0))
	if err != nil {
		return err
	}
	l.revision = ack.Sequence
	l.hold(began)
	return nil
}

// hold starts the TTL at began, when the request was sent; JetStream starts it later.
func (l *Lease) hold(began time.Duration) { l.until.Store(int64(began + l.ttl)) }

// Held reports whether the lease cannot have expired.
func (l *Lease) Held() bool { return l.remaining() > 0 }

// remaining returns the time until the lease can expire.
func (l *Lease) remaining() time.Duration { return time.Duration(l.until.Load()) - l.elapsed() }

// taken reports whether the error is that the key has another revision than expected.
func taken(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) ||
		errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// Release deletes the key, so that a standby takes over at once: the successor, if that is
// not "", unless it takes longer than holdBack.
func (l *Lease) Release(ctx context.Context, successor string) error {
	if !l.Held() {
		return nil
	}
	l.until.Store(0)
	if successor != "" {
		l.heldBack = l.elapsed() + l.holdBack()
	}
	kv, err := l.js.KeyValue(ctx, l.bucket())
	if err == nil {
		err = l.delete(ctx, l.revision, successor)
	}
	if taken(err) { // by another process, or by an unacknowledged renewal of this one
		err = l.deleteOwn(ctx, kv, successor)
	}
	if taken(err) || errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	return err
}

// holdBack is how long others leave a released lease to the process that it is for.
func (l *Lease) holdBack() time.Duration { return max(l.ttl/renewals, time.Second) }

// delete deletes the key at a revision, as KeyValue does, which sends no other headers.
func (l *Lease) delete(ctx context.Context, revision uint64, successor string) error {
	m := nats.NewMsg(l.subject())
	m.Header.Set(operationHeader, operationDelete)
	if successor != "" {
		m.Header.Set(successorHeader, successor)
	}
	_, err := l.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithRetryAttempts(0))
	return err
}

// deleteOwn deletes the key at any revision if this process is the holder.
func (l *Lease) deleteOwn(ctx context.Context, kv jetstream.KeyValue, successor string) error {
	entry, err := kv.Get(ctx, key)
	if err != nil {
		return err
	}
	if has, err := readHolder(entry.Value()); err != nil || has != l.mine {
		return nil
	}
	return l.delete(ctx, entry.Revision(), successor)
}

// Await returns when this process holds the lease, or with ctx's error. It calls
// problem after each attempt: with the error that kept it from reading the lease or from
// taking an expired one, or nil.
func (l *Lease) Await(ctx context.Context, problem func(error)) error {
	// A deletion of the key is a hand-over: try at once.
	changes := make(chan *nats.Msg, 16)
	sub, err := l.js.Conn().ChanSubscribe(l.subject(), changes)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	poll := max(l.ttl/10, minPoll)
	next := time.NewTimer(0)
	defer next.Stop()
	var missing time.Duration // since when there is no bucket; 0 if there is one
	heard := l.elapsed()      // time of JetStream's last reply, or of the last reconnect
	patience := leaveAfter * l.ttl
	reconnects := l.js.Conn().Stats().Reconnects
	for {
		select {
		case m := <-changes:
			l.heldBack = 0
			if m.Header.Get(operationHeader) == "" { // somebody has it
				continue
			}
			if successor := m.Header.Get(successorHeader); successor != "" && successor != l.mine.Node {
				l.heldBack = l.elapsed() + l.holdBack()
			}
		case <-next.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if wait := l.heldBack - l.elapsed(); wait > 0 {
			heard = l.elapsed()
			next.Reset(wait)
			continue
		}
		try, cancel := context.WithTimeout(ctx, max(l.ttl/renewals, time.Second))
		err := l.attempt(try, &missing)
		cancel()
		if ctx.Err() != nil {
			if err == nil {
				_ = l.Release(context.WithoutCancel(ctx), "") // or it expires
			}
			return ctx.Err()
		}
		if err == nil {
			problem(nil)
			return nil
		}
		if errors.Is(err, ErrHeld) {
			err = nil
		}
		problem(err)
		// A server that is partitioned from its cluster keeps its clients, without
		// JetStream. Another database of this process may have caused a reconnect.
		before := reconnects
		reconnects = l.js.Conn().Stats().Reconnects
		switch now := l.elapsed(); {
		case err == nil || full(err):
			heard, patience = now, leaveAfter*l.ttl
		case reconnects != before:
			heard = now
		case now-heard > patience:
			l.reconnect()
			heard, patience = now, min(2*patience, maxLeave*l.ttl)
		}
		next.Reset(poll)
	}
}

// attempt tries to acquire once. If the bucket was removed, it waits for one TTL, so
// that the present writer can create it again. It returns errNoQuorum instead of ErrHeld
// if nobody can renew the lease.
func (l *Lease) attempt(ctx context.Context, missing *time.Duration) error {
	stream, err := l.js.Stream(ctx, l.stream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		l.other = observed{}
		if now := l.elapsed(); *missing == 0 {
			*missing = now
		} else if now-*missing >= l.ttl {
			return l.Acquire(ctx, false)
		}
		return ErrHeld
	} else if err != nil {
		return err
	}
	*missing = 0
	kv, err := l.js.KeyValue(ctx, l.bucket())
	if err != nil {
		return err
	}
	if err = l.take(ctx, kv, false); errors.Is(err, ErrHeld) {
		return cmp.Or(quorum(stream.CachedInfo().Cluster), err)
	}
	return err
}

// Expire returns ErrLeaseLost when the lease has expired, or nil when ctx ends. Unlike
// Keep it does not wait for NATS, whose client resolves names under its lock.
func (l *Lease) Expire(ctx context.Context) error {
	for l.remaining() > -minPoll { // Keep knows why: let it be first
		select {
		case <-time.After(max(l.remaining(), 0) + minPoll):
		case <-ctx.Done():
			return nil
		}
	}
	return fmt.Errorf("%w for %s", ErrLeaseLost, l.ttl)
}

// Keep renews the lease until ctx ends, which is no error, or the lease is lost:
// ErrHeld or ErrLeaseLost.
func (l *Lease) Keep(ctx context.Context) error {
	every := l.ttl / renewals
	wait := time.NewTimer(every)
	defer wait.Stop()
	for {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return nil
		}
		err := l.renew(ctx)
		switch {
		case err == nil:
			wait.Reset(every)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrHeld):
			return ErrHeld
		case !l.Held():
			return fmt.Errorf("%w for %s: %w", ErrLeaseLost, l.ttl, err)
		default:
			wait.Reset(min(every/renewals, l.remaining()))
		}
	}
}
