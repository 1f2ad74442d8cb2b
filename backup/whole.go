package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/logread"
	"github.com/lapsedb/lapse/processor/embedded/blocks"
)

// chunkSilence is how long NATS may send nothing of a stream.
const chunkSilence = time.Minute

// whole copies the stream as NATS sends all of it, several times as fast as to a consumer. NATS
// before 2.15 sends its files instead: whole then copies nothing. It asks for a snapshot
// of the stream. The archive of NATS 2.15 has messages, of which this package makes its
// own files. Older servers send their files, whose layout lapse would have to know.
func (c *copier) whole(ctx context.Context) error {
	nc := c.js.Conn()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	request, err := json.Marshal(map[string]any{"deliver_subject": sub.Subject, "no_consumers": true, "chunk_size": 1 << 20})
	if err == nil {
		_, err = ask(ctx, c.js, logread.API(c.js)+"STREAM.SNAPSHOT."+c.Config.Name, request)
	}
	if err != nil {
		return err
	}
	reading, sending := io.Pipe()
	defer reading.Close()
	received := make(chan error, 1)
	go func() {
		err := receive(ctx, sub, sending)
		received <- err
		sending.CloseWithError(err)
	}()
	var content []byte
	for r := archive.NewReader(s2.NewReader(reading)); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, archive.ErrInvalidArchive) && c.Messages == 0:
			return nil
		case err != nil:
			select {
			case why := <-received: // which the reader hides
				return cmp.Or(why, err)
			default:
				return err
			}
		case h.Sequence == 0 && h.Name == "": // the end
			return nil
		case h.Sequence == 0: // the state
			continue
		}
		if h.HeaderSize+h.PayloadSize > maxFile {
			return fmt.Errorf("message %d has %d bytes", h.Sequence, h.HeaderSize+h.PayloadSize)
		}
		content = slices.Grow(content[:0], int(h.HeaderSize+h.PayloadSize))[:h.HeaderSize+h.PayloadSize]
		_, err = io.ReadFull(r, content)
		if err == nil {
			err = c.store(blocks.Message{Seq: h.Sequence, Time: h.Timestamp, Subject: h.Name, Header: content[:h.HeaderSize], Body: content[h.HeaderSize:]})
		}
		if err != nil {
			return err
		}
	}
}

// receive writes the chunks of a stream as they come, the last of which is empty. Each
// chunk is answered, so that NATS sends the next ones.
func receive(ctx context.Context, sub *nats.Subscription, to io.Writer) error {
	for {
		waiting, done := context.WithTimeout(ctx, chunkSilence)
		m, err := sub.NextMsgWithContext(waiting)
		done()
		switch {
		case err != nil:
			return err
		case len(m.Data) > 0:
			if _, err := to.Write(m.Data); err != nil {
				return err
			}
			if err := m.Respond(nil); err != nil {
				return err
			}
		case m.Header.Get("Status") != "204":
			return fmt.Errorf("JetStream: status %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
		default:
			return nil
		}
	}
}
