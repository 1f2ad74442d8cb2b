package client

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// standstill is how long a reader with an end waits for its next message.
const standstill = 30 * time.Second

// messageGet is the prefix of a JetStream API subject.
const messageGet = "STREAM.MSG.GET."

// logInfo returns what NATS knows of the log. The leader of the stream answers, a new leader
// once it has applied what it holds; the state of a consumer is that of one replica, which
// may lag. It fails with ErrUnavailable without a leader, since then any replica answers.
func (c *Client) logInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := c.js.Stream(ctx, c.database.LogStream())
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	if info.Cluster != nil && info.Cluster.Leader == "" {
		return nil, ErrUnavailable.With("the log of database %q has no leader now: try again", c.database)
	}
	return info, nil
}

// lastChosen returns the sequence of the last message that f chooses, 0 for none. The log
// may grow between two requests: what f chooses up to the sequence is complete.
func (c *Client) lastChosen(ctx context.Context, f *feed) (last uint64, err error) {
	for _, subject := range f.filters(c.database) {
		seq, err := sequenceOf(c.log().Last(ctx, subject))
		if err != nil {
			return 0, err
		}
		last = max(last, seq)
	}
	return last, nil
}

// nextOf returns the sequence of the first message after another with a subject, which may
// have wildcards, 0 for none.
func (c *Client) nextOf(ctx context.Context, after uint64, subject string) (seq uint64, err error) {
	return sequenceOf(c.log().Next(ctx, after+1, subject))
}

// sequenceOf returns the sequence of a message, 0 instead of jetstream.ErrMsgNotFound.
func sequenceOf(m *jetstream.RawStreamMsg, err error) (uint64, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return m.Sequence, nil
}

// begin returns the sequence at which a feed without a stored position begins. "From now" is
// a sequence, too: otherwise a consumer that is made again would skip events.
func (c *Client) begin(ctx context.Context, f *feed) (uint64, error) {
	if f.fromSeq != nil && *f.fromSeq == 1 {
		return 1, nil
	}
	info, err := c.logInfo(ctx)
	if err != nil {
		return 0, err
	}
	state := info.State
	switch next := state.LastSeq + 1; {
	case f.fromTime != nil:
		return c.log().FirstSince(ctx, state.FirstSeq, state.LastSeq, *f.fromTime)
	case f.fromSeq == nil:
		return next, nil
	case *f.fromSeq > next:
		return 0, c.beyondEnd(*f.fromSeq, state.LastSeq)
	}
	return *f.fromSeq, nil
}

// end returns the last sequence of a feed: 0 if it has none or, with UntilNow, is empty.
func (c *Client) end(ctx context.Context, f *feed) (end uint64, err error) {
	if f.untilSeq != nil {
		end = *f.untilSeq
	}
	if f.untilNow {
		last, err := c.lastChosen(ctx, f)
		return min(cmp.Or(end, last), last), err
	}
	return end, nil
}

// beyondEnd returns the error of a reader that is to continue at a sequence which the log,
// whose last sequence is given, does not reach.
func (c *Client) beyondEnd(seq, last uint64) error {
	return ErrBadRequest.With("sequence %d is beyond the end of the log of database %q, which is %d: the position is from another log, or from before a restore; begin with at most %d, or query the live documents and begin from now", seq, c.database, last, last+1)
}

// whole is the source of a feed whose end is in the log. It fails with ErrUnavailable if
// the replica that delivers does not get there.
type whole struct {
	source
	client       *Client
	reached, end uint64
}

func (w *whole) next(ctx context.Context) (delivery, error) {
	waiting, cancel := context.WithTimeout(ctx, w.client.standstill)
	defer cancel()
	d, err := w.source.next(waiting)
	if err == nil {
		w.reached = d.seq
	} else if ctx.Err() == nil && waiting.Err() != nil {
		err = ErrUnavailable.With("incomplete: the log was read up to sequence %d of %d, and nothing came for %v, since the replica that is read lags or is cut off: try again, or see `nats stream info %s`",
			w.reached, w.end, w.client.standstill, w.client.database.LogStream())
	}
	return d, err
}
