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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Log is the JetStream stream that holds the events of a database.
//
// Who uses what: the writer alone calls Listen and Append, and has the fields for them;
// reading is safe for concurrent use; End, Lost, Judged and Extent are set by the start,
// before others see the Log.
type Log struct {
	DB     schema.DatabaseName
	NC     *nats.Conn
	JS     jetstream.JetStream
	Bulk   jetstream.JetStream // over Connections.Bulk
	Stream jetstream.Stream
	events observe.EventListener

	// Connected receives a notice after a reconnect: acknowledgements may be lost.
	Connected chan nats.Status
	// Elected receives a notice when the stream has a new leader, which may lack the
	// last appends.
	Elected   chan struct{}
	elections *nats.Subscription

	// prefix starts the subjects of the stream. It contains a random secret, so that
	// only those who may read the stream's configuration can append. It is unique, so
	// it also identifies the log.
	prefix     string
	identities []string // its own, and those of the logs that it continues

	// End is the gap at the end of the log at the time of Check.
	End Gap
	// Lost is the range of events that the log has lost at its end, and Judged the last
	// mutation judged by the end of that range.
	Lost   Gap
	Judged uint64
	Extent *extentFile

	Written *atomic.Uint64 // bytes of event bodies appended by this process

	// Full is set from when JetStream reports that it has no storage until an append
	// succeeds, or a standby reaches the log.
	Full *atomic.Bool

	// For Append, which only the writer calls.
	Acks     chan Ack // of Epoch
	ackSub   *nats.Subscription
	inbox    string // of the epoch's acknowledgements, with the final dot
	Epoch    int
	chain    string // prefix of the ids of the epoch's events
	appended uint64 // the last sequence sent in the epoch
	lastID   string // the id of that event
	// Alone allows only one append in flight. A replicated stream checks the last id
	// after Raft has accepted the message: on a mismatch each replica gives up the
	// stream for good (nats-server 2.15.2), and a replica that caught up has no last id.
	Alone   bool
	message *ReusedMessage
	stage   func(bytes int) (batch string)
	checked bool
	storage jetstream.StorageType
}

// Config configures a Log.
type Config struct {
	Database schema.DatabaseName
	// Replicas of the streams that are created. An existing stream must have as many;
	// 0 allows any number.
	Replicas int
	// Storage is where they are: file if left out.
	Storage jetstream.StorageType
	// Events receives foreign messages and damage; may be nil.
	Events observe.EventListener
}

// Open opens the database's log, or creates it if there is none. It returns an error
// if the stream is not a log of lapse.
func Open(ctx context.Context, c Connections, o Config) (*Log, error) {
	return findLog(ctx, c, o, true)
}

// OpenExisting opens the database's log, or returns jetstream.ErrStreamNotFound.
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
	l := &Log{DB: db, NC: c.Log, JS: js, Bulk: bulk, events: o.Events.EnsureDefaults(), message: NewReusedMessage(), Written: new(atomic.Uint64), Full: new(atomic.Bool), stage: c.Stage, checked: c.Checked, storage: o.Storage}
	l.Stream, err = js.Stream(ctx, db.LogStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) && create {
		l.Stream, err = CreateLog(ctx, js, o, 1)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // created by another process
			l.Stream, err = js.Stream(ctx, db.LogStream())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", db.LogStream(), err)
	}
	if err := checkLog(l.Stream.CachedInfo().Config, o); err != nil {
		return nil, err
	}
	info := l.Stream.CachedInfo()
	l.Alone = info.Config.Replicas > 1 || info.Cluster != nil && info.Cluster.Name != "" // it may get replicas later
	l.prefix = strings.TrimSuffix(info.Config.Subjects[0], ">")
	l.identities = Identities(info.Config)
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

// ForgetTrouble drops the notices of Connected and Elected. Call it when nothing is
// in flight: a standby may have received many.
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

// CreateLog creates an empty log whose first sequence will be first. The prefix of its
// subjects has a new secret, see Log.prefix.
func CreateLog(ctx context.Context, js jetstream.JetStream, o Config, first uint64) (jetstream.Stream, error) {
	config := LogConfig(o.Database, o.Database.Append()+rand.Text()+".")
	config.FirstSeq = first
	config.Replicas = max(o.Replicas, 1)
	config.Storage = o.Storage
	return js.CreateStream(ctx, config)
}

// Close ends the subscriptions and closes the extent file; connection and stream stay.
func (l *Log) Close() {
	l.NC.RemoveStatusListener(l.Connected)
	_ = l.elections.Unsubscribe()
	if l.Extent != nil {
		_ = l.Extent.Close()
	}
	_ = l.unlisten()
}

// LogConfig returns the configuration of a log with the subjects below prefix.
//
// The stream listens below a secret prefix and stores under lapse.<db>.events: so consumers
// filter by the subjects of the contract, and a message to these subjects is no event.
// DenyDelete keeps single events from being removed. Nothing is discarded by age, number or
// size: only retention trims, below a verified snapshot.
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
		Duplicates:         duplicateWindow, // ids only chain events here
		MaxMsgs:            -1,
		MaxBytes:           -1,
		MaxMsgsPerSubject:  -1,
		Replicas:           1,
	}
}

// Identity identifies the log, also after its stream was replaced by another of the
// same name. It does not disclose the secret needed to append.
func (l *Log) Identity() string { return identityOf(l.prefix) }

func identityOf(prefix string) string { return hex.EncodeToString(secretOf(prefix, "identity")[:16]) }

// CheckRights returns an error if NATS refuses lapse the right to read the log, or the
// mutations, which would be acknowledged and never judged.
func (l *Log) CheckRights() error {
	var needed []string
	for _, stream := range []string{l.DB.LogStream(), l.DB.MutationStream()} {
		consumer := stream + "." + schema.ServerConsumer + rand.Text()
		needed = append(needed, "$JS.API.CONSUMER.CREATE."+consumer, "$JS.API.CONSUMER.MSG.NEXT."+consumer)
	}
	return CheckRights(l.Bulk.Conn(), needed...)
}

// Secret returns a secret for one purpose: the same for the life of this log, in each
// process that may read its configuration.
func (l *Log) Secret(purpose string) []byte { return secretOf(l.prefix, purpose) }

// secretOf derives a secret for one purpose by HMAC-SHA-256 (RFC 2104), so that the one
// does not tell the other, nor the prefix.
func secretOf(prefix, purpose string) []byte {
	h := hmac.New(sha256.New, []byte(prefix))
	h.Write([]byte(purpose))
	return h.Sum(nil)
}
