package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/lapsedb/lapse/client"
)

// unhandled is an event that was put aside. The error is text for people; the event is as
// in an export, so lapse or jq can read it.
type unhandled struct {
	Durable string        `json:"durable"`
	Seq     uint64        `json:"seq"`
	Error   string        `json:"error"`
	Event   *client.Event `json:"event,omitempty"`
}

// PoisonCollection stores events as documents <durable>-<sequence> of a collection. A document
// that would be too large or too deep with its event has only the sequence. Storing it
// again under the same id is harmless: the same event may be put aside twice.
func PoisonCollection(collection *client.Collection, durable string) client.PoisonHandler {
	return func(ctx context.Context, e *client.Event, cause error) error {
		u := unhandled{durable, e.Seq, cause.Error(), e}
		for {
			_, err := client.Upsert(ctx, collection, fmt.Sprintf("%s-%d", durable, e.Seq), u)
			coded, _ := errors.AsType[*client.Error](err)
			switch {
			case u.Event != nil && (errors.Is(err, client.ErrTooLarge) || errors.Is(err, client.ErrBadRequest)):
				u.Event = nil
				continue
			case err == nil, ctx.Err() != nil, coded != nil && !coded.Retryable():
				return err
			}
			pause(ctx)
		}
	}
}

// PoisonFile appends events to a file, a line of JSON each, and syncs it. The line after one
// that a full disk has cut is whole: it follows an empty one.
func PoisonFile(file *os.File, durable string) client.PoisonHandler {
	var mu sync.Mutex
	cut := true // perhaps, by an earlier process
	return func(_ context.Context, e *client.Event, cause error) error {
		line, err := json.Marshal(unhandled{durable, e.Seq, cause.Error(), e})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if info, err := file.Stat(); err == nil && info.Size() > 0 && cut {
			line = append([]byte{'\n'}, line...)
		}
		_, err = file.Write(append(line, '\n'))
		if cut = err != nil; cut {
			return err
		}
		return file.Sync()
	}
}
