package writer

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// historyTimeout limits a read of the log for a restore: it blocks the writer.
const historyTimeout = time.Second

// history is machine.History: restores are rare, so the writer itself reads the log.
type history struct{ *Writer }

func (h history) Last(name schema.CollectionName, id schema.DocumentID) (uint64, error) {
	return h.store.LastOf(name, id)
}

func (h history) Event(seq uint64) (*schema.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), historyTimeout)
	defer cancel()
	e, err := h.Log.Event(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, schema.ErrUnavailable.With("the log could not be read for the restore: try again")
	case e.Type == schema.NoEvent:
		return nil, nil
	}
	return e, nil
}
