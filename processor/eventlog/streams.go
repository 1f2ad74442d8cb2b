package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/semver"
)

// duplicateWindow is JetStream's shortest. lapse judges repeats of a Nats-Msg-Id
// itself, so that a repeat of a rejected mutation is judged again.
const duplicateWindow = 100 * time.Millisecond

// checkLog returns an error if an existing stream is not a log of the database, or
// would lose events.
func checkLog(config jetstream.StreamConfig, o Config) error {
	db := o.Database
	if len(config.Subjects) != 1 || !strings.HasPrefix(config.Subjects[0], db.Append()) ||
		config.SubjectTransform == nil || config.SubjectTransform.Destination != db.Events()+">" ||
		!config.AllowAtomicPublish {
		return fmt.Errorf("stream %s exists but is not a lapse log: remove it, or serve another --database", config.Name)
	}
	if err := Interrupted(config); err != nil {
		return err
	}
	return checkStream(config, o)
}

// checkMutations is checkLog for the mutations stream.
func checkMutations(config jetstream.StreamConfig, o Config) error {
	db := o.Database
	if len(config.Subjects) != 1 || config.Subjects[0] != db.Mutations()+">" || config.SubjectTransform != nil {
		return fmt.Errorf("stream %s exists but does not listen on %s>: remove it, or serve another --database", config.Name, db.Mutations())
	}
	if err := Interrupted(config); err != nil {
		return err
	}
	return checkStream(config, o)
}

// checkStream returns an error for the first setting with which a stream would lose,
// change or reject messages. lapse changes no settings: an operator chose them and has
// to decide.
func checkStream(config jetstream.StreamConfig, o Config) error {
	drops := config.Discard == jetstream.DiscardOld
	for _, rule := range []struct {
		wrong   bool
		setting string
		right   string
	}{
		{config.Storage != o.Storage, "storage " + strings.ToLower(config.Storage.String()), strings.ToLower(o.Storage.String())},
		{config.Retention != jetstream.LimitsPolicy, "retention " + strings.ToLower(config.Retention.String()), "limits"},
		{config.MaxAge > 0, fmt.Sprintf("max_age %s", config.MaxAge), "unlimited; lapse trims the log with --retain"},
		{config.MaxMsgs > 0 && drops, fmt.Sprintf("max_msgs %d", config.MaxMsgs), "unlimited, or discard to new"},
		{config.MaxBytes > 0 && drops, fmt.Sprintf("max_bytes %d", config.MaxBytes), "unlimited, or discard to new"},
		{config.MaxMsgsPerSubject > 0, fmt.Sprintf("max_msgs_per_subject %d", config.MaxMsgsPerSubject), "unlimited"},
		{config.MaxMsgSize > 0, fmt.Sprintf("max_msg_size %d", config.MaxMsgSize), "unlimited"},
		{config.Mirror != nil, "a mirror", "none"},
		{len(config.Sources) > 0, "sources", "none"},
		{config.NoAck, "no_ack", "off"},
		{config.Sealed, "sealed", "off"},
		{config.AllowRollup, "allow_rollup_hdrs", "off"},
		{config.AllowMsgTTL, "allow_msg_ttl", "off"},
		{config.AllowMsgCounter, "allow_msg_counter", "off"},
		{config.AllowMsgSchedules, "allow_msg_schedules", "off"},
		{config.PersistMode == jetstream.AsyncPersistMode, "persist_mode async", "default"},
		{config.Duplicates > duplicateWindow, fmt.Sprintf("duplicate_window %s", config.Duplicates), duplicateWindow.String()},
	} {
		if rule.wrong {
			return fmt.Errorf("stream %s has %s; lapse needs %s: change it with `nats stream edit %s`, or serve another --database",
				config.Name, rule.setting, rule.right, config.Name)
		}
	}
	if o.Replicas > 0 && config.Replicas != o.Replicas {
		return fmt.Errorf("stream %s has %d replica(s), and --replicas says %d: change it with `nats stream edit %s --replicas %d`, or start without --replicas",
			config.Name, config.Replicas, o.Replicas, config.Name, o.Replicas)
	}
	return nil
}

// Versions of the NATS server.
const (
	// oldestServer is the first with atomic batches. Without them the log could store
	// the events of a mutation batch, or of one sync, in part.
	oldestServer = "v2.12.0"
	// oldestLevel is its JetStream API level, for the other servers of the cluster.
	oldestLevel = 2
)

// openTimeout is how long streams may be unreachable at the start, as in a cluster
// that has no leader yet.
const (
	openTimeout = 30 * time.Second
	tryTimeout  = 5 * time.Second // of one attempt
)

// UntilOpen retries open while its error is transient, for openTimeout: the stream may
// have no leader yet, or another process is creating it.
func UntilOpen(ctx context.Context, c Connections, open func(context.Context) error) error {
	err := backoff.Retry(func() error {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		err := open(try)
		// On a shared connection the denial may be about another database.
		if denied := c.denial(); err != nil && !c.Shared && denied != nil {
			return backoff.Permanent(fmt.Errorf("the user that lapse is at %s lacks rights (%w): give it those of the users processor and bulk in nats.conf", c.Log.ConnectedUrlRedacted(), denied))
		}
		if err != nil && (ctx.Err() != nil || !Transient(err) && !errors.Is(err, jetstream.ErrStreamNotFound)) {
			return backoff.Permanent(err)
		}
		return err
	}, tryFor(ctx, openTimeout))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == notClustered {
		return fmt.Errorf("the NATS server at %s is not one of a cluster: start without --replicas, or give the --nats-url of a cluster", c.Log.ConnectedUrlRedacted())
	}
	if err != nil && Transient(err) {
		remedy := "see whether it is enabled, has a leader and is below max_file_store"
		if denied := c.denial(); denied != nil {
			remedy = fmt.Sprintf("see whether the user lacks rights (%v)", denied)
		}
		err = fmt.Errorf("JetStream at %s does not answer: %w: %s", c.Log.ConnectedUrlRedacted(), err, remedy)
	}
	return err
}

// denial returns the denial that is the last error of the connection Log, nil if none is.
func (c Connections) denial() error {
	if err := c.Log.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

// notClustered is JetStream's code for replicas on a server without a cluster.
const notClustered jetstream.ErrorCode = 10074

// Transient reports whether a retry may succeed: there was no reply, or a cluster has too
// few of its servers. Errors that name a cause, such as a missing permission, are not
// transient.
func Transient(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(transientCodes, api.ErrorCode)
}

// transientCodes are JetStream's codes for a cluster that lacks servers: incomplete
// results, no suitable peers, not assigned, not available, not the leader, and
// insufficient resources, which includes peers.
var transientCodes = []jetstream.ErrorCode{10004, 10005, 10007, 10008, 10009, 10023}

// CheckVersion returns an error if the server that nc is connected to is too old.
func CheckVersion(nc *nats.Conn) error {
	if has := "v" + nc.ConnectedServerVersion(); semver.IsValid(has) && semver.Compare(has, oldestServer) < 0 {
		return fmt.Errorf("the NATS server at %s is %s: lapse needs %s or newer, which accepts atomic batches; upgrade it", nc.ConnectedUrlRedacted(), has, oldestServer)
	}
	return nil
}

// CheckStreams checks the account, the database's existing streams, and that no other
// stream has their subjects. It changes nothing, so a start that it refuses leaves
// everything as it was.
func CheckStreams(ctx context.Context, c Connections, o Config) error {
	js, err := jetstream.New(c.Log)
	if err != nil {
		return err
	}
	db := o.Database
	account, err := js.AccountInfo(ctx)
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("the NATS server at %s has no JetStream for this account: enable it", c.Log.ConnectedUrlRedacted())
	}
	if err == nil && account.API.Level < oldestLevel {
		return fmt.Errorf("JetStream at %s has API level %d: lapse needs %d or newer (NATS %s), which accepts atomic batches; upgrade all servers", c.Log.ConnectedUrlRedacted(), account.API.Level, oldestLevel, oldestServer)
	} else if err != nil {
		return err
	}
	for name, check := range map[string]struct {
		subjects string
		config   func(jetstream.StreamConfig, Config) error
	}{
		db.LogStream():      {db.Append() + ">", checkLog},
		db.MutationStream(): {db.Mutations() + ">", checkMutations},
	} {
		stream, err := js.Stream(ctx, name)
		if err == nil {
			err = check.config(stream.CachedInfo().Config, o)
		} else if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = checkFree(ctx, js, name, check.subjects)
		}
		if err != nil {
			return err
		}
	}
	// A stream on request subjects would acknowledge requests; one on event subjects
	// would hold events that are not in the log.
	for what, subjects := range map[string]string{"requests": db.API() + ">", "events of " + db.LogStream(): db.Events() + ">"} {
		if err := checkFree(ctx, js, what, subjects); err != nil {
			return err
		}
	}
	return nil
}

// checkFree returns an error if a stream other than name has the subjects.
func checkFree(ctx context.Context, js jetstream.JetStream, name, subjects string) error {
	other, err := js.StreamNameBySubject(ctx, subjects)
	if errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && other == name { // created by another process
		return nil
	} else if err != nil {
		return err
	}
	return fmt.Errorf("stream %s overlaps %s, the subjects of %s: change its subjects or remove it, or serve another --database", other, subjects, name)
}
