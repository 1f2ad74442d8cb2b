package eventlog

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// eventLog is the JetStream stream that is the log.
type Log struct {
	DB     schema.DatabaseName
	NC     *nats.Conn
	JS     jetstream.JetStream
	Bulk   jetstream.JetStream // over another connection, to read much
	Stream jetstream.Stream
	events observe.EventListener

	// connected tells when the connection is back that was lost, and with it
	// perhaps acknowledgements.
	Connected chan nats.Status
	// elected holds something when the stream has another leader, which may not
	// have what the one before was given last.
	Elected   chan struct{}
	elections *nats.Subscription

	// prefix starts the subjects on which the stream listens. It holds a
	// secret made with the stream, so that nobody who cannot read the stream's
	// configuration can steer anything into it; as a name that no other stream
	// ever has, it also is the log's identity.
	prefix string

	// end is the hole that the log ended in when it was checked.
	End Gap
	// lost is what it is known to have had beyond its end, and judged the last
	// mutation that was judged there.
	Lost   Gap
	Judged uint64
	Extent *extentFile

	Written *atomic.Uint64 // bytes of the bodies that were appended, by this process

	// What Append uses; only the writer calls it.
	Acks     chan Ack
	Sub      *nats.Subscription
	inbox    string // with the epoch, up to and including the dot
	Epoch    int
	chain    string // starts the ids of the epoch's events
	appended uint64 // the last sequence of the epoch
	lastID   string // and its event's id
	// alone says that only one append may be on its way. Replicated streams
	// look at the id of the last message too late, when Raft has the next one:
	// where that does not fit, each replica gives the stream up for good
	// (nats-server 2.15.2), and one that has caught up knows no last id.
	Alone   bool
	message *ReusedMessage
}

// eventlogConfig says which log it is.
type Config struct {
	Database schema.DatabaseName
	// Replicas is how many copies NATS keeps of a stream that is made; one that is
	// there has to have as many, or any if 0.
	Replicas int
	// Events is told of foreign messages and damage; nobody if nil.
	Events observe.EventListener
}

// openLog creates the database's log, or checks that the stream there is one.
func Open(ctx context.Context, c Connections, o Config) (*Log, error) {
	return findLog(ctx, c, o, true)
}

// openExistingLog is openLog where there has to be one: the error is
// jetstream.ErrStreamNotFound otherwise.
func OpenExisting(ctx context.Context, c Connections, o Config) (*Log, error) {
	return findLog(ctx, c, o, false)
}

func findLog(ctx context.Context, c Connections, o Config, create bool) (*Log, error) {
	js, err := jetstream.New(c.Log)
	if err != nil {
		return nil, err
	}
	bulk, err := jetstream.New(c.ForBulk())
	if err != nil {
		return nil, err
	}
	db := o.Database
	l := &Log{DB: db, NC: c.Log, JS: js, Bulk: bulk, events: o.Events.EnsureDefaults(), message: NewReusedMessage(), Written: new(atomic.Uint64)}
	l.Stream, err = js.Stream(ctx, db.LogStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) && create {
		l.Stream, err = CreateLog(ctx, js, db, 1, o.Replicas)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
			l.Stream, err = js.Stream(ctx, db.LogStream())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", db.LogStream(), err)
	}
	if err := checkLog(l.Stream.CachedInfo().Config, db, o.Replicas); err != nil {
		return nil, err
	}
	info := l.Stream.CachedInfo()
	l.Alone = info.Config.Replicas > 1 || info.Cluster != nil && info.Cluster.Name != "" // which may get replicas later
	l.prefix = strings.TrimSuffix(info.Config.Subjects[0], ">")
	l.Connected = c.Log.StatusChanged(nats.CONNECTED)
	l.Elected = make(chan struct{}, 1)
	l.elections, err = c.Log.Subscribe("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED."+db.LogStream(), func(*nats.Msg) {
		select {
		case l.Elected <- struct{}{}:
		default:
		}
	})
	return l, err
}

// forgetTrouble forgets what happened to the connection and the stream until now,
// for when nothing is on its way that can have been lost: a standby may have seen
// much of that.
func (l *Log) ForgetTrouble() {
	for {
		select {
		case <-l.Connected:
		case <-l.Elected:
		default:
			return
		}
	}
}

// createLog creates an empty log that begins with sequence first.
func CreateLog(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName, first uint64, replicas int) (jetstream.Stream, error) {
	config := LogConfig(db, db.Append()+rand.Text()+".")
	config.FirstSeq = first
	config.Replicas = max(replicas, 1)
	return js.CreateStream(ctx, config)
}

// close ends listening. The connection and the stream stay.
func (l *Log) Close() {
	l.NC.RemoveStatusListener(l.Connected)
	_ = l.elections.Unsubscribe()
	if l.Extent != nil {
		_ = l.Extent.Close()
	}
	if l.Sub != nil {
		_ = l.Sub.Unsubscribe()
	}
}

func LogConfig(db schema.DatabaseName, prefix string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               db.LogStream(),
		Description:        "lapse: the log of database " + string(db),
		Subjects:           []string{prefix + ">"},
		SubjectTransform:   &jetstream.SubjectTransformConfig{Source: prefix + ">", Destination: db.Events() + ">"},
		Storage:            jetstream.FileStorage,
		Retention:          jetstream.LimitsPolicy,
		AllowAtomicPublish: true,
		DenyDelete:         true,
		Duplicates:         RepeatWindow, // ids here only make a chain
		MaxMsgs:            -1,
		MaxBytes:           -1,
		MaxMsgsPerSubject:  -1,
		Replicas:           1,
	}
}

// Identity names the log itself, not its stream's name. Who knows it cannot
// append.
func (l *Log) Identity() string { return identityOf(l.prefix) }

func identityOf(prefix string) string { return hex.EncodeToString(secretOf(prefix, "identity")[:16]) }

// Secret returns a secret for one purpose, the same as long as there is this
// log, for every process that may read it.
func (l *Log) Secret(purpose string) []byte { return secretOf(l.prefix, purpose) }

func secretOf(prefix, purpose string) []byte {
	h := hmac.New(sha256.New, []byte(prefix))
	h.Write([]byte(purpose))
	return h.Sum(nil)
}

// Bounds returns the first and last sequence in the log, without a hole at its
// end.
func (l *Log) Bounds(ctx context.Context) (first, last uint64, err error) {
	info, err := l.Stream.Info(ctx)
	if err != nil {
		return 0, 0, err
	}
	if last = info.State.LastSeq; last == l.End.Last {
		last = max(l.End.First, 1) - 1
	}
	return info.State.FirstSeq, last, nil
}

// last is the last sequence of Bounds, for whoever asks again if nobody answers.
func (l *Log) Last(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	_, last, err := l.Bounds(ctx)
	return last, err
}

// ServerTime returns what the clock of the NATS server says.
func (l *Log) ServerTime(ctx context.Context) (time.Time, error) {
	info, err := l.Stream.Info(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return info.TimeStamp, nil
}

// Event reads one event; jetstream.ErrMsgNotFound if there is none.
func (l *Log) Event(ctx context.Context, seq uint64) (*schema.Event, error) {
	m, err := l.Stream.GetMsg(ctx, seq)
	if err != nil {
		return nil, err
	}
	return l.Decode(seq, m.Subject, m.Header, m.Data), nil
}

// FirstSince returns the sequence of the first event at or after a log time, in
// ms; that after the last one if there is none. Log time does not go back.
func (l *Log) FirstSince(ctx context.Context, at int64) (seq uint64, err error) {
	first, last, err := l.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	low, high := first, last+1 // it is in there, high included
	for low < high {
		middle := low + (high-low)/2
		// A message that is no event has no log time: the next one that has.
		probe := middle
		e := &schema.Event{}
		for ; probe < high && e.Type == schema.NoEvent; probe++ {
			if e, err = l.Event(ctx, probe); errors.Is(err, jetstream.ErrMsgNotFound) {
				e = &schema.Event{Seq: probe} // in a hole
			} else if err != nil {
				return 0, fmt.Errorf("read event %d: %w", probe, err)
			}
		}
		if e.Type == schema.NoEvent || e.Time >= at {
			high = middle
		} else {
			low = probe
		}
	}
	return low, nil
}

// decode reads a message of the log. One that is no event of ours comes back
// with type NoEvent: it is skipped, counted and reported, never fatal.
func (l *Log) Decode(seq uint64, subject string, header nats.Header, body []byte) *schema.Event {
	collection, eventType, ok := schema.SplitEventSubject(strings.TrimPrefix(subject, l.DB.Events()[:len(l.DB.Events())-1]))
	if ok && strings.HasPrefix(subject, l.DB.Events()) {
		e, err := schema.DecodeEvent(seq, collection, eventType, header.Get, body)
		if err == nil {
			e.More = header.Get(jetstreamext.BatchIDHeader) != "" && header.Get(jetstreamext.BatchCommitHeader) == ""
			return e
		}
		l.events(observe.ForeignMessage{Seq: seq, Subject: subject, Err: err})
	} else {
		l.events(observe.ForeignMessage{Seq: seq, Subject: subject})
	}
	return &schema.Event{Seq: seq, Body: body}
}

// Read visits the log from sequence from to through, both included, or, if there
// is a known hole, to what is behind that. It ends with errHole at another, and
// with errPast where retention was faster.
func (l *Log) Read(ctx context.Context, from, through uint64, visit func(*schema.Event) error) error {
	if from > through {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stalled := time.AfterFunc(readTimeout, func() { cancel(fmt.Errorf("nothing came for %s", readTimeout)) })
	defer stalled.Stop()
	defer cancel(nil)
	visit = l.Contiguous(from, visit)
	p := Puller{JS: l.Bulk, Stream: l.DB.LogStream(), Messages: ReadAhead, Bytes: ReadAheadBytes}
	var visited error
	err := p.Read(ctx, from, func(seq uint64, m *nats.Msg) error {
		stalled.Reset(readTimeout)
		if visited = visit(l.Decode(seq, m.Subject, m.Header, m.Data)); visited == nil && seq >= through {
			return errRead
		}
		return visited
	})
	switch {
	case visited != nil:
		return l.OrTrimmed(ctx, visited)
	case errors.Is(err, errRead):
		return nil
	}
	return fmt.Errorf("read the log: %w", errors.Join(err, context.Cause(ctx)))
}

// ReadPatiently is Read that goes on where it was when the stream's consumer, or
// its leader, went away, as long as something comes now and then.
func (l *Log) ReadPatiently(ctx context.Context, from, through uint64, visit func(*schema.Event) error) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(ResumeInterval), backoff.WithMaxElapsedTime(openTimeout))
	return backoff.Retry(func() error {
		var visited error
		err := l.Read(ctx, from, through, func(e *schema.Event) error {
			if visited = visit(e); visited == nil {
				from = e.Seq + 1
				retry.Reset()
			}
			return visited
		})
		if visited != nil || errors.Is(err, ErrGap) || errors.Is(err, ErrPast) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(retry, ctx))
}

// errRead ends reading where it was to end.
var errRead = errors.New("read")

const (
	readTimeout    = 10 * time.Second // between two messages
	ReadAhead      = 4096             // messages asked for at a time when reading the log
	ReadAheadBytes = 32 << 20
	FoldAtOnce     = 1000 // events folded at a time when reading the log
	FoldAtBytes    = 8 << 20
)

// CatchUp folds the log from the store's cursor up to sequence through.
// progress is called with the sequences folded, now and then.
func (l *Log) CatchUp(ctx context.Context, store *projections.Store, through uint64, progress func(seq uint64)) error {
	facts := make([]projections.Fact, 0, FoldAtOnce)
	bytes := 0
	fold := func() error {
		if err := store.Fold(facts); err != nil {
			return err
		}
		if progress != nil && len(facts) > 0 {
			progress(facts[len(facts)-1].Seq)
		}
		clear(facts)
		facts, bytes = facts[:0], 0
		return nil
	}
	err := l.ReadPatiently(ctx, store.Cursor().Seq+1, through, func(e *schema.Event) error {
		facts = append(facts, projections.Fact{Event: e})
		if bytes += len(e.Body); !e.More && (len(facts) >= FoldAtOnce || bytes > FoldAtBytes) {
			return fold()
		}
		return nil
	})
	return errors.Join(err, fold())
}
