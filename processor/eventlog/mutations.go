package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Mutations is the JetStream stream of published mutations. Lapse-Cause in the log, and
// the projection's cursor, record which of them are judged: there is nothing to
// acknowledge, and no second record that could disagree.
type Mutations struct {
	db     schema.DatabaseName
	bulk   jetstream.JetStream // reads
	stream jetstream.Stream
	events observe.EventListener
}

// Bounds of the mutations that are read before they are decided.
const (
	mutationsAhead      = 512
	mutationsAheadBytes = 16 << 20
	MutationsQueued     = 64
)

// OpenMutations opens the stream, or creates it if there is none. judged is the last
// sequence that the log records as judged.
func OpenMutations(ctx context.Context, log *Log, judged uint64, replicas int) (*Mutations, error) {
	db := log.DB
	s := &Mutations{db: db, bulk: log.Bulk, events: log.events}
	name := db.MutationStream()
	var err error
	s.stream, err = log.JS.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.stream, err = log.JS.CreateStream(ctx, jetstream.StreamConfig{
			Name:        name,
			Description: "lapse: mutations of database " + string(db),
			Subjects:    []string{db.Mutations() + ">"},
			Storage:     log.storage,
			Retention:   jetstream.LimitsPolicy,
			DenyDelete:  true,
			MaxMsgs:     -1,
			MaxBytes:    -1,
			Replicas:    max(replicas, 1),
			// The log refers to mutations by sequence, so none may be used twice.
			FirstSeq:   judged + 1,
			Duplicates: duplicateWindow,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // created by another process
			s.stream, err = log.JS.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	if err := checkMutations(s.stream.CachedInfo().Config, Config{Database: db, Replicas: replicas, Storage: log.storage}); err != nil {
		return nil, err
	}
	return s, nil
}

// Check returns an error if the stream has lost mutations: a LostEnd if it ends before
// sequence judged, or another if it begins later than after it, since only judged ones
// are ever removed. With acceptLost it reports them instead, and the next mutation gets a
// sequence after judged.
func (s *Mutations) Check(ctx context.Context, judged uint64, acceptLost bool) error {
	name := s.db.MutationStream()
	err := Extent{Seq: judged, By: "what the log has judged"}.AwaitEnd(ctx, name, s.stream.CachedInfo().Config.Replicas > 1, func() (uint64, error) {
		if _, err := s.stream.Info(ctx); err != nil && !Transient(err) {
			return 0, fmt.Errorf("stream %s: %w", name, err)
		}
		return s.stream.CachedInfo().State.LastSeq, nil
	})
	state := s.stream.CachedInfo().State
	lost := Gap{judged + 1, state.FirstSeq - 1}
	switch end, isLostEnd := errors.AsType[*LostEnd](err); {
	case isLostEnd && acceptLost:
		lost = Gap{end.Last + 1, judged}
		if err := s.stream.Purge(ctx, jetstream.WithPurgeSequence(judged+1)); err != nil {
			return fmt.Errorf("continue stream %s after %d: %w", name, judged, err)
		}
	case err != nil:
		return err
	case state.FirstSeq <= judged+1 || state.LastSeq <= judged:
		return nil
	case !acceptLost:
		return fmt.Errorf("stream %s begins at %d, and the log has judged it up to %d: mutations between are lost; restore both from one copy, or restart with --accept-lost-end",
			name, state.FirstSeq, judged)
	}
	s.events(observe.LogDamaged{Text: "mutations are lost", Stream: name, First: lost.First, Last: lost.Last})
	return nil
}

// Info asks NATS for the stream's state and configuration.
func (s *Mutations) Info(ctx context.Context) (*jetstream.StreamInfo, error) {
	return s.stream.Info(ctx)
}

// After returns how many mutations follow sequence judged.
func (s *Mutations) After(ctx context.Context, judged uint64) (uint64, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq - min(judged, info.State.LastSeq), nil
}

// Trim removes the mutations up to sequence judged: the log has their outcome.
func (s *Mutations) Trim(ctx context.Context, judged uint64) error {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return err
	}
	if info.State.FirstSeq > judged || info.State.Msgs == 0 {
		return nil
	}
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSequence(judged+1)); err != nil {
		return fmt.Errorf("trim stream %s: %w", s.db.MutationStream(), err)
	}
	return nil
}

// Run sends the mutations after sequence last to out, in order, until ctx ends. It reads
// ahead within the bounds above, and waits while out is full: mutations wait in the stream,
// not in memory. It emits MutationsUnreachable for each failed attempt, and tries for ever.
func (s *Mutations) Run(ctx context.Context, last uint64, out chan<- *schema.Mutation) {
	retry := TryForever(ctx)
	var since time.Time // when the stream became unreachable; zero if it is reachable
	_ = backoff.RetryNotify(func() error {
		before := last
		err := s.read(ctx, &last, out, func() {
			if !since.IsZero() {
				s.events(observe.MutationsReachable{After: time.Since(since)})
				since = time.Time{}
			}
		})
		if last > before {
			retry.Reset()
		}
		return err
	}, retry, func(err error, wait time.Duration) {
		if since.IsZero() {
			since = time.Now()
		}
		s.events(observe.MutationsUnreachable{Err: err, Since: since, Again: wait})
	})
}

// read is one attempt of Run and returns only with an error. It calls reached when it
// has a consumer.
func (s *Mutations) read(ctx context.Context, last *uint64, out chan<- *schema.Mutation, reached func()) error {
	p := Puller{JS: s.bulk, Stream: s.db.MutationStream(), Messages: mutationsAhead, Bytes: mutationsAheadBytes, FailFast: true, Began: reached}
	return p.Read(ctx, *last+1, func(seq uint64, m *nats.Msg) error {
		mutation := schema.PublishedMutation(seq, strings.TrimPrefix(m.Subject, s.db.Mutations()), schema.Header(m.Header), m.Data)
		if m.Header == nil && m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data) && mutation.Fault == nil {
			mutation.Fault = schema.ErrBadRequest.With("malformed NATS headers: write NATS/1.0, lines of name: value, and an empty line")
		}
		select {
		case out <- mutation:
			*last = seq
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
