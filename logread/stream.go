// Package logread reads the log, or another stream of JetStream: in order through a
// Consumer, or single messages as the leader of the stream has them.
package logread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// Stream is a stream whose single messages come from its leader. Package jetstream gets
// them from any replica, which may lag, if an operator allows direct gets.
type Stream struct {
	JS   jetstream.JetStream
	Name string
}

// API returns the prefix of JetStream's subjects, with the final dot.
func API(js jetstream.JetStream) string {
	switch opts := js.Options(); {
	case opts.APIPrefix != "":
		return opts.APIPrefix + "."
	case opts.Domain != "":
		return "$JS." + opts.Domain + ".API."
	}
	return "$JS.API."
}

// Get returns the message with a sequence, or jetstream.ErrMsgNotFound.
func (s Stream) Get(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	return s.get(ctx, map[string]any{"seq": seq})
}

// Last returns the last message with a subject, which may have wildcards, or
// jetstream.ErrMsgNotFound.
func (s Stream) Last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return s.get(ctx, map[string]any{"last_by_subj": subject})
}

// Next returns the first message from sequence seq on with a subject, which may have
// wildcards, or jetstream.ErrMsgNotFound.
func (s Stream) Next(ctx context.Context, seq uint64, subject string) (*jetstream.RawStreamMsg, error) {
	return s.get(ctx, map[string]any{"seq": seq, "next_by_subj": subject})
}

// get is raw with the header parsed.
func (s Stream) get(ctx context.Context, which map[string]any) (*jetstream.RawStreamMsg, error) {
	m, header, err := s.raw(ctx, which)
	if err == nil && len(header) > 0 {
		m.Header, err = nats.DecodeHeadersMsg(header)
	}
	return m, err
}

// Header returns the header of the message with a sequence as the stream stores it, also one
// that nats.go cannot read.
func (s Stream) Header(ctx context.Context, seq uint64) ([]byte, error) {
	_, header, err := s.raw(ctx, map[string]any{"seq": seq})
	return header, err
}

// raw is get without the header, which it returns as it is.
func (s Stream) raw(ctx context.Context, which map[string]any) (_ *jetstream.RawStreamMsg, header []byte, err error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.JS.Options().DefaultTimeout)
		defer cancel()
	}
	body, err := json.Marshal(which)
	if err != nil {
		return nil, nil, err
	}
	reply, err := s.JS.Conn().RequestWithContext(ctx, API(s.JS)+"STREAM.MSG.GET."+s.Name, body)
	if err != nil {
		return nil, nil, err
	}
	var found struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &found); err != nil {
		return nil, nil, err
	}
	if found.Error != nil {
		return nil, nil, found.Error // errors.Is compares its code
	}
	m := found.Message
	return &jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Sequence, Data: m.Data, Time: m.Time}, m.Header, nil
}

// FirstSince returns the sequence of the first event from first to last whose log time (Unix
// ms) is at or later, or last+1. It tries the first event, which often is late enough, and
// then bisects, since log time does not go back. JetStream would search by the times of the
// machine's clock, from which log time may differ by years. The result may be lower by
// messages that are no events or missing. It costs about log2 of the log's length in
// requests.
func (s Stream) FirstSince(ctx context.Context, first, last uint64, at int64) (uint64, error) {
	low, high := max(first, 1), last+1 // the result is in [low, high]
	for probe := low; low < high; probe = low + (high-low)/2 {
		e, err := s.eventFrom(ctx, probe, high)
		switch {
		case err != nil:
			return 0, fmt.Errorf("read event %d: %w", probe, err)
		case e == nil || e.Time >= at:
			high = probe
		default:
			low = e.Seq + 1
		}
	}
	return low, nil
}

// eventFrom returns the first event from sequence seq on and before end, nil for none. It
// passes over gaps, and messages that are no events, which have no log time.
func (s Stream) eventFrom(ctx context.Context, seq, end uint64) (*schema.Event, error) {
	for {
		m, err := s.Next(ctx, seq, ">")
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && m.Sequence >= end {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if collection, eventType, ok := schema.SplitEventSubject(m.Subject); ok {
			if e, err := schema.DecodeEvent(m.Sequence, collection, eventType, m.Header.Get, m.Data); err == nil {
				return e, nil
			}
		}
		seq = m.Sequence + 1
	}
}
