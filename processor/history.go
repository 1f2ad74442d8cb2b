package processor

import (
	"context"
	"encoding/json"
	"errors"
	"math"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// Bounds of a history request.
const (
	defaultHistory = 100
	maxHistory     = 1000
)

func (r *request) history() {
	name, id, fault := documentName(r.tail)
	if fault != nil {
		r.refuse(fault)
		return
	}
	limit, fault := parseHistory(r.data)
	if fault != nil {
		r.refuse(fault)
		return
	}
	ctx, cancel := r.context(requestTimeout)
	defer cancel()
	events, err := r.service.History(ctx, name, id, limit)
	switch {
	case errors.Is(err, schema.ErrTooLarge):
		r.refuse(schema.AsError(err))
		return
	case err != nil:
		r.fail(err)
		return
	}
	if len(events) == 0 {
		switch _, fault, err := r.document(name, id, r.now()); {
		case err != nil:
			r.failRead(err)
			return
		case fault == nil:
			r.reply(200, nil, []byte(`{"events":[]}`)) // it lives longer than the log is kept
			return
		}
		if _, ok := r.store.Collection(name); !ok {
			r.refuse(schema.NoCollection(name))
			return
		}
		r.refuse(neverWas(name, id))
		return
	}
	r.reply(200, nil, appendHistory(nil, events))
}

func appendHistory(dst []byte, events []*schema.Event) []byte {
	dst = append(dst, `{"events":[`...)
	for i, e := range events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = e.AppendJSON(dst)
	}
	return append(dst, ']', '}')
}

func parseHistory(data []byte) (limit int, fault *schema.Error) {
	if len(data) == 0 {
		return defaultHistory, nil
	}
	var body struct {
		Limit *float64 `json:"limit"` // 100.0 is 100
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return 0, schema.ErrBadRequest.With(`the body of history is not {"limit":n} or empty: %v`, err)
	}
	if body.Limit == nil {
		return defaultHistory, nil
	}
	if n := *body.Limit; n < 1 || n > maxHistory || n != math.Trunc(n) {
		return 0, schema.ErrBadRequest.With("limit %v: use a whole number from 1 to %d", n, maxHistory)
	}
	return int(*body.Limit), nil
}

// History returns the latest events of an id, newest first and at most limit.
// The projection knows where each life ended, and Lapse-Previous leads back
// from there to where it began: no more of the log is read than is returned.
//
// It returns schema.ErrTooLarge as soon as no reply could hold the events.
func (s *service) History(ctx context.Context, name schema.CollectionName, id schema.DocumentID, limit int) ([]*schema.Event, error) {
	lives, err := s.store.Lives(name, id, limit)
	if err != nil {
		return nil, err
	}
	var events []*schema.Event
	bytes := 0
	err = followLives(lives, limit, func(seq uint64) (*schema.Event, error) {
		e, err := s.log.Event(ctx, seq)
		if err != nil {
			return nil, err
		}
		if bytes += len(e.Body); bytes > s.room {
			return nil, schema.ErrTooLarge.With("the latest %d events have %d bytes and a message at most %d: ask for less with limit", len(events)+1, bytes, s.room)
		}
		events = append(events, e)
		return e, nil
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return events, nil // trimmed from here on
	} else if err != nil {
		return nil, err
	}
	return events, nil
}

// followLives visits the events of lives, newest first and at most limit, until
// visit returns an error.
func followLives(lives []uint64, limit int, visit func(seq uint64) (*schema.Event, error)) error {
	for _, seq := range lives {
		for ; seq != 0 && limit > 0; limit-- {
			e, err := visit(seq)
			if err != nil {
				return err
			}
			seq = uint64(e.Previous)
		}
	}
	return nil
}

// neverWas is the error of a history of nothing.
func neverWas(name schema.CollectionName, id schema.DocumentID) *schema.Error {
	return schema.ErrDocumentNotFound.With("the log knows of no document %q in %s", string(id), name)
}
