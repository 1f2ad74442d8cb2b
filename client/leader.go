package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// standstill is how long a reader with an end waits for its next message.
const standstill = 30 * time.Second

// messageGet is the prefix of a JetStream API subject.
const messageGet = "STREAM.MSG.GET."

// logState returns the state of the log. The leader of the stream answers, a new leader
// once it has applied what it holds; the state of a consumer is that of one replica, which
// may lag. It fails with ErrUnavailable without a leader, since then any replica answers.
func (c *Client) logState(ctx context.Context) (state jetstream.StreamState, err error) {
	stream, err := c.js.Stream(ctx, c.database.LogStream())
	if err != nil {
		return state, err
	}
	info := stream.CachedInfo()
	if info.Cluster != nil && info.Cluster.Leader == "" {
		return state, ErrUnavailable.With("the log of database %q has no leader now: try again", c.database)
	}
	return info.State, nil
}

// lastSequence returns the sequence of the last event of the log, 0 for none.
func (c *Client) lastSequence(ctx context.Context) (uint64, error) {
	state, err := c.logState(ctx)
	return state.LastSeq, err
}

// lastChosen returns the sequence and JetStream's time of the last message that f chooses,
// 0 for none. The log may grow between two requests: what f chooses up to the sequence is
// complete.
func (c *Client) lastChosen(ctx context.Context, f *feed) (seq uint64, at time.Time, err error) {
	for _, subject := range f.filters(c.database) {
		last, t, err := c.lastOf(ctx, subject)
		if err != nil {
			return 0, at, err
		}
		if last > seq {
			seq, at = last, t
		}
	}
	return seq, at, nil
}

// lastOf returns the sequence and JetStream's time of the last message with a subject, which
// may have wildcards, 0 for none.
func (c *Client) lastOf(ctx context.Context, subject string) (seq uint64, at time.Time, err error) {
	return c.message(ctx, map[string]any{"last_by_subj": subject, "no_hdr": true})
}

// nextOf returns the sequence of the first message after another with a subject, which may
// have wildcards, 0 for none.
func (c *Client) nextOf(ctx context.Context, after uint64, subject string) (seq uint64, err error) {
	seq, _, err = c.message(ctx, map[string]any{"seq": after + 1, "next_by_subj": subject, "no_hdr": true})
	return seq, err
}

// message returns the sequence and JetStream's time of the message of the log that is
// requested, 0 for none. The leader answers, unlike a direct get.
func (c *Client) message(ctx context.Context, request map[string]any) (seq uint64, at time.Time, err error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	body, _ := json.Marshal(request)
	reply, err := c.nc.RequestWithContext(ctx, c.api()+messageGet+c.database.LogStream(), body)
	if err != nil {
		return 0, at, err
	}
	var found struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Seq  uint64    `json:"seq"`
			Time time.Time `json:"time"`
		} `json:"message"`
	}
	err = json.Unmarshal(reply.Data, &found)
	if found.Error != nil && !errors.Is(found.Error, jetstream.ErrMsgNotFound) {
		err = found.Error
	}
	return found.Message.Seq, found.Message.Time, err
}

// span returns the first and the last sequence of a feed: begin is 0 if it begins at a
// time or where its durable is, and end is 0 if it has none or, with UntilNow, is empty.
func (c *Client) span(ctx context.Context, f *feed) (begin, end uint64, err error) {
	if f.fromSeq != nil {
		begin = *f.fromSeq
	}
	if fromNow := f.fromNow() && f.durable == ""; fromNow || begin > 1 {
		last, err := c.lastSequence(ctx)
		if err != nil {
			return 0, 0, err
		}
		if fromNow {
			begin = last + 1
		}
		if begin > last+1 && !c.hasDurable(ctx, f) {
			return 0, 0, c.beyondEnd(begin, last)
		}
	}
	if f.untilSeq != nil {
		end = *f.untilSeq
	}
	if f.untilNow {
		last, at, err := c.lastChosen(ctx, f)
		if _, _, start := f.begin(0); err != nil || start != nil && f.durable == "" && at.Before(*start) {
			return 0, 0, err
		}
		end = min(cmp.Or(end, last), last)
	}
	return begin, end, nil
}

// hasDurable reports whether the durable of f exists, which then has a position.
func (c *Client) hasDurable(ctx context.Context, f *feed) bool {
	if f.durable == "" {
		return false
	}
	_, err := c.js.Consumer(ctx, c.database.LogStream(), f.durable)
	return !errors.Is(err, jetstream.ErrConsumerNotFound)
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
