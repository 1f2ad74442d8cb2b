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
	DB     schema.DatabaseName
	Bulk   jetstream.JetStream // reads
	Stream jetstream.Stream
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
	s := &Mutations{DB: db, Bulk: log.Bulk, events: log.events}
	name := db.MutationStream()
	var err error
	s.Stream, err = log.JS.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s.Stream, err = log.JS.CreateStream(ctx, jetstream.StreamConfig{
			Name:        name,
			Description: "lapse: mutations of database " + string(db),
			Subjects:    []string{db.Mutations() + ">"},
			Storage:     jetstream.FileStorage,
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
			s.Stream, err = log.JS.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	if err := checkMutations(s.Stream.CachedInfo().Config, db, replicas); err != nil {
		return nil, err
	}
	return s, nil
}

// CheckEnd returns an error if the stream ends before sequence judged. In a cluster it
// waits first: a new leader may not have applied all that it holds.
func (s *Mutations) CheckEnd(ctx context.Context, judged uint64) error {
	for began := time.Now(); ; {
		info := s.Stream.CachedInfo()
		if info.State.LastSeq >= judged {
			return nil
		}
		if info.Config.Replicas == 1 || time.Since(began) > TruncationDelay {
			return fmt.Errorf("stream %s ends at %d and the log has judged it up to %d: it has lost its end; restore it, or remove it to start anew behind %d", s.DB.MutationStream(), info.State.LastSeq, judged, judged)
		}
		select {
		case <-time.After(ResumeInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, err := s.Stream.Info(ctx); err != nil && !Transient(err) {
			return fmt.Errorf("stream %s: %w", s.DB.MutationStream(), err)
		}
	}
}

// CheckBeginning returns an error if mutations behind sequence judged are missing: only
// judged ones are ever removed. With acceptLost it reports them instead.
func (s *Mutations) CheckBeginning(judged uint64, acceptLost bool) error {
	state := s.Stream.CachedInfo().State
	if state.FirstSeq <= judged+1 || state.LastSeq <= judged {
		return nil
	}
	if acceptLost {
		s.events(observe.LogDamaged{Text: "mutations are lost that the log does not record as judged", Stream: s.DB.MutationStream(), First: judged + 1, Last: state.FirstSeq - 1})
		return nil
	}
	return fmt.Errorf("stream %s begins at %d, and the log has judged it up to %d: mutations between are lost; restore both from one copy, or go on without them with --accept-lost-end",
		s.DB.MutationStream(), state.FirstSeq, judged)
}

// Behind returns how many mutations follow sequence judged.
func (s *Mutations) Behind(ctx context.Context, judged uint64) (uint64, error) {
	info, err := s.Stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq - min(judged, info.State.LastSeq), nil
}

// Trim removes the mutations up to sequence judged: the log has their outcome.
func (s *Mutations) Trim(ctx context.Context, judged uint64) error {
	info, err := s.Stream.Info(ctx)
	if err != nil {
		return err
	}
	if info.State.FirstSeq > judged || info.State.Msgs == 0 {
		return nil
	}
	if err := s.Stream.Purge(ctx, jetstream.WithPurgeSequence(judged+1)); err != nil {
		return fmt.Errorf("trim stream %s: %w", s.DB.MutationStream(), err)
	}
	return nil
}

// Run sends the mutations after sequence last to out, in order, until ctx ends.
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
	p := Puller{JS: s.Bulk, Stream: s.DB.MutationStream(), Messages: mutationsAhead, Bytes: mutationsAheadBytes, Impatient: true, Began: reached}
	return p.Read(ctx, *last+1, func(seq uint64, m *nats.Msg) error {
		mutation := schema.PublishedMutation(seq, strings.TrimPrefix(m.Subject, s.DB.Mutations()), schema.Header(m.Header), m.Data)
		if m.Header == nil && m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data) && mutation.Fault == nil {
			mutation.Fault = schema.ErrBadRequest.With("its headers are not NATS headers, so what they ask for is not known: write NATS/1.0, lines of name: value, and an empty line")
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
