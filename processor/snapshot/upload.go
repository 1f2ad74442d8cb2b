package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// upload is a reader for ObjectStore.Put that bounds memory: it returns full chunks, and
// waits while more than uploadAhead bytes are not stored yet. nats.go publishes what it
// reads without waiting for acknowledgements, so the whole archive could be in memory
// otherwise.
type upload struct {
	ctx     context.Context
	store   jetstream.ObjectStore
	from    io.Reader
	sent    uint64
	stored  uint64
	abandon context.CancelFunc // if not nil, ends Put when it does not return after an error
}

const (
	uploadAhead = 32 << 20
	// uploadPause is between two checks of what is stored, and before the end of Put: nats.go
	// may have just started a goroutine, which waits for ever if Put ends before it runs.
	uploadPause = 5 * time.Millisecond

	uploadTimeout = 10 * time.Second
)

// Read returns the next chunk, once the object store has most of those before it. At the
// end it waits until all are stored, so that Put succeeds only then.
func (u *upload) Read(chunk []byte) (n int, err error) {
	defer func() {
		if err == nil {
			return
		}
		time.Sleep(uploadPause)
		if u.abandon != nil {
			time.AfterFunc(stallTimeout, u.abandon)
		}
	}()
	if err := u.await(uploadAhead); err != nil {
		return 0, err
	}
	n, err = io.ReadFull(u.from, chunk)
	u.sent += uint64(n)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = nil // the next call returns io.EOF
	case errors.Is(err, io.EOF):
		if lost := u.await(0); lost != nil {
			err = lost
		}
	}
	return n, err
}

// await returns when at most ahead bytes are not stored yet.
func (u *upload) await(ahead uint64) error {
	for last := time.Now(); u.sent > u.stored+ahead; time.Sleep(uploadPause) {
		status, err := u.store.Status(u.ctx)
		if err != nil {
			return err
		}
		if stored := status.Size(); stored > u.stored {
			u.stored, last = stored, time.Now()
		} else if time.Since(last) > uploadTimeout {
			return fmt.Errorf("the object store has stored %d of %d bytes, and none for %s", stored, u.sent, uploadTimeout)
		}
	}
	return nil
}
