package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/schema"
)

// lease says who should write: the value of a key that goes by itself when it is
// not renewed. It only keeps two processes from getting in each other's way. Who
// can write the fence on the log says; that a lease was lost, deleted, or is held
// by two at a time harms nothing.
//
// The libraries for elections on NATS that there are poll, want 5 s and more, and
// know no handing over, so this is ours.
type Lease struct {
	js       jetstream.JetStream
	db       schema.DatabaseName
	ttl      time.Duration
	replicas int
	Mine     holder
	elapsed  func() time.Duration // by a clock that nobody sets
	leave    func()               // has the processor connect to other servers of NATS, if there are any

	Revision uint64       // of the key, while it is held
	until    atomic.Int64 // elapsed, in ns, up to which it is held for certain
}

// holder is the value of the key.
type holder struct {
	Node string `json:"node"` // the same over restarts of one lapse
	Host string `json:"host"`
	Term string `json:"term"` // another one for each start
}

// valid tells whether the value is one that lapse writes.
func (h holder) valid() bool { return h.Node != "" && h.Term != "" }

const (
	LeaseKey     = "writer"
	leaseRenewal = 3                // renewals in one lease
	leaveAfter   = 2                // leases without an answer of JetStream until another server is tried
	markerLife   = 10 * time.Minute // of the note that JetStream leaves of a key that went
	minLeaseWait = 50 * time.Millisecond
)

func (l *Lease) bucket() string  { return l.db.LeaseBucket() }
func (l *Lease) subject() string { return "$KV." + l.bucket() + "." + LeaseKey }

// leaseConfig is what a lease is made of.
type Config struct {
	Database schema.DatabaseName
	TTL      time.Duration // whole seconds
	Replicas int           // of its bucket, if it has to be made
	Node     string        // names the process over restarts
	// Elapsed is a clock that nobody sets.
	Elapsed func() time.Duration
	// Leave has the connections of the process go to other servers of NATS.
	Leave func()
}

func New(js jetstream.JetStream, c Config) *Lease {
	host, _ := os.Hostname() // any name does
	return &Lease{js: js, db: c.Database, ttl: c.TTL, replicas: c.Replicas, elapsed: c.Elapsed, leave: c.Leave,
		Mine: holder{Node: c.Node, Host: host, Term: nuid.Next()}}
}

// errHeld means that another process has the lease.
var ErrHeld = errors.New("another lapse has the lease")

// errLeaseLost means that it ended, as far as this process can tell.
var ErrLeaseLost = errors.New("the lease could not be renewed")

// checkLease tells whether a bucket that is there is a lease's, and holds what
// lapse writes or nothing.
func Check(ctx context.Context, nc *nats.Conn, db schema.DatabaseName, replicas int) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	name := db.LeaseBucket()
	kv, err := js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	strange := func(what string) error {
		return fmt.Errorf("bucket %s is there and is not the lease of a lapse (%s): remove it with `nats kv del %s`, or serve another --database", name, what, name)
	}
	switch {
	case errors.Is(err, jetstream.ErrBadBucket):
		return strange(err.Error())
	case err != nil: // perhaps it has no leader yet
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	config := status.Config()
	switch {
	case config.LimitMarkerTTL == 0:
		return strange("its keys have no ttl")
	case config.TTL > 0:
		return strange(fmt.Sprintf("it has a ttl of %s for all keys", config.TTL))
	case replicas > 0 && config.Replicas != replicas:
		return fmt.Errorf("bucket %s is there with %d replica(s), and --replicas says %d: change it with `nats stream edit KV_%s --replicas %d`, or start without --replicas",
			name, config.Replicas, replicas, name, replicas)
	}
	keys, err := kv.ListKeys(ctx)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	defer func() { _ = keys.Stop() }()
	for key := range keys.Keys() {
		if key != LeaseKey {
			return strange(fmt.Sprintf("it has a key %q", key))
		}
	}
	entry, err := kv.Get(ctx, LeaseKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	} else if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	if _, err := readHolder(entry.Value()); err != nil {
		return strange(err.Error())
	}
	return nil
}

func readHolder(value []byte) (h holder, err error) {
	if err := json.Unmarshal(value, &h); err != nil || !h.valid() {
		return h, fmt.Errorf("its key %s is %.60q", LeaseKey, value)
	}
	return h, nil
}

// open creates the bucket if there is none.
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
		LimitMarkerTTL: markerLife,
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
		return l.js.KeyValue(ctx, l.bucket())
	}
	return kv, err
}

// acquire takes the lease if nobody has it, or returns errHeld; it makes the
// bucket if there is none. back says that what an earlier process of this node
// holds is taken, too: it is dead, since this one has its files.
func (l *Lease) Acquire(ctx context.Context, back bool) error {
	kv, err := l.open(ctx)
	if err != nil {
		return err
	}
	return l.take(ctx, kv, back)
}

// take is acquire in a bucket that is there.
func (l *Lease) take(ctx context.Context, kv jetstream.KeyValue, back bool) error {
	began := l.elapsed()
	entry, err := kv.Get(ctx, LeaseKey)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		l.Revision = 0
	case err != nil:
		return err
	default:
		has, err := readHolder(entry.Value())
		if err != nil {
			return fmt.Errorf("bucket %s: %w: remove it with `nats kv del %s`", l.bucket(), err, l.bucket())
		}
		before := has.Node == l.Mine.Node && has.Host == l.Mine.Host
		if has.Term != l.Mine.Term && !(back && before) {
			return ErrHeld
		}
		l.Revision = entry.Revision()
	}
	value, err := json.Marshal(l.Mine)
	if err != nil {
		return err
	}
	if l.Revision == 0 {
		l.Revision, err = kv.Create(ctx, LeaseKey, value, jetstream.KeyTTL(l.ttl))
		if err == nil {
			l.hold(began)
		}
	} else {
		err = l.put(ctx, began, value)
	}
	if taken(err) {
		return ErrHeld
	}
	return err
}

// renew holds the lease for another while. It returns errHeld if it is lost.
func (l *Lease) renew(ctx context.Context) error {
	value, err := json.Marshal(l.Mine)
	if err != nil {
		return err
	}
	patience := min(l.ttl/leaseRenewal, l.left())
	try, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	if err = l.put(try, l.elapsed(), value); err == nil {
		return nil
	}
	// A renewal before may have come, and its answer not; the bucket may be gone,
	// in which case nobody answers.
	again, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	return l.Acquire(again, false)
}

// put replaces the value at the revision known. Publishing is what KeyValue does,
// too, but it has no ttl for a key that is there.
func (l *Lease) put(ctx context.Context, began time.Duration, value []byte) error {
	ack, err := l.js.PublishMsg(ctx, &nats.Msg{Subject: l.subject(), Data: value},
		jetstream.WithExpectLastSequencePerSubject(l.Revision), jetstream.WithMsgTTL(l.ttl), jetstream.WithRetryAttempts(0))
	if err != nil {
		return err
	}
	l.Revision = ack.Sequence
	l.hold(began)
	return nil
}

// hold counts from when the lease was asked for: JetStream counts from later.
func (l *Lease) hold(began time.Duration) { l.until.Store(int64(began + l.ttl)) }

// held tells whether nobody else can have the lease, unless somebody took it by
// force.
func (l *Lease) Held() bool { return l.left() > 0 }

// left is how long it is held for certain.
func (l *Lease) left() time.Duration { return time.Duration(l.until.Load()) - l.elapsed() }

// taken tells whether somebody else wrote the key.
func taken(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) ||
		errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// release gives the lease up, so that who waits for it need not wait for its end.
func (l *Lease) Release(ctx context.Context) error {
	if !l.Held() {
		return nil
	}
	l.until.Store(0)
	kv, err := l.js.KeyValue(ctx, l.bucket())
	if err == nil {
		err = kv.Delete(ctx, LeaseKey, jetstream.LastRevision(l.Revision))
	}
	if taken(err) { // by another, or by a renewal of ours whose answer was not waited for
		err = l.giveBack(ctx, kv)
	}
	if taken(err) || errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	return err
}

// giveBack deletes the key, whatever its revision is, if the value is this
// process's.
func (l *Lease) giveBack(ctx context.Context, kv jetstream.KeyValue) error {
	entry, err := kv.Get(ctx, LeaseKey)
	if err != nil {
		return err
	}
	if has, err := readHolder(entry.Value()); err != nil || has != l.Mine {
		return nil
	}
	return kv.Delete(ctx, LeaseKey, jetstream.LastRevision(entry.Revision()))
}

// await returns when the lease is this process's, or with ctx's error. problem is
// told what keeps it from finding out, nil when it could.
func (l *Lease) Await(ctx context.Context, problem func(error)) error {
	// What is written to the key passes by here, too: a deletion is a hand-over.
	changes := make(chan *nats.Msg, 16)
	sub, err := l.js.Conn().ChanSubscribe(l.subject(), changes)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	poll := max(l.ttl/10, minLeaseWait)
	next := time.NewTimer(0)
	defer next.Stop()
	var missing time.Duration // since when there is no bucket, 0 if there is one
	heard := l.elapsed()      // when JetStream answered last
	for {
		select {
		case m := <-changes:
			if m.Header.Get("KV-Operation") == "" {
				continue
			}
		case <-next.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		try, cancel := context.WithTimeout(ctx, max(l.ttl/leaseRenewal, time.Second))
		err := l.attempt(try, &missing)
		cancel()
		if err == nil {
			problem(nil)
			return nil
		}
		if errors.Is(err, ErrHeld) {
			err = nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		problem(err)
		// A server that is cut off from the others of its cluster keeps its clients
		// and has no JetStream for them.
		if now := l.elapsed(); err == nil {
			heard = now
		} else if now-heard > leaveAfter*l.ttl {
			l.leave()
			heard = now
		}
		next.Reset(poll)
	}
}

// attempt is one try to acquire. Where somebody removed the bucket, whoever
// writes now gets the time to notice, and to make it again.
func (l *Lease) attempt(ctx context.Context, missing *time.Duration) error {
	kv, err := l.js.KeyValue(ctx, l.bucket())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
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
	return l.take(ctx, kv, false)
}

// keep renews the lease until ctx ends, which is nil, or it is lost.
func (l *Lease) Keep(ctx context.Context) error {
	every := l.ttl / leaseRenewal
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
			wait.Reset(min(every/leaseRenewal, l.left()))
		}
	}
}
