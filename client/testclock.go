package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// TestClock moves the clock of the client's database, which lapse test serves. Its calls wait
// for a minute unless ctx has a deadline.
type TestClock struct{ c *Client }

// testClockTimeout is longer than that of other requests: a move waits for all that it brings.
const testClockTimeout = time.Minute

// TestClock returns the clock of the client's database.
func (c *Client) TestClock() TestClock { return TestClock{c} }

// Advanced says what a move of the clock brought.
type Advanced struct {
	Now    time.Time // where the clock stands
	Seq    uint64    // of the last event
	Events int       // expiries and warnings that the move brought
}

// Open opens the database, empty, with its clock at a time, or with the zero Time where the
// server began. It fails with ErrDatabaseExists if it is open.
func (t TestClock) Open(ctx context.Context, at time.Time) error {
	var body any
	if !at.IsZero() {
		body = map[string]string{"at": at.UTC().Format(time.RFC3339Nano)}
	}
	return t.ask(ctx, "open", body, nil)
}

// Now returns the time that the clock shows. It fails with ErrDatabaseNotFound if the database
// is not open, as do the others.
func (t TestClock) Now(ctx context.Context) (time.Time, error) {
	var shown struct{ Now int64 }
	err := t.ask(ctx, "now", nil, &shown)
	return time.UnixMilli(shown.Now), err
}

// Advance moves the clock on by whole seconds. It returns when all that came due is in the log:
// the next read and every reader of the log sees it.
func (t TestClock) Advance(ctx context.Context, by time.Duration) (Advanced, error) {
	if by%time.Second != 0 {
		return Advanced{}, ErrBadRequest.With("a clock moves by whole seconds, not by %s", by)
	}
	return t.move(ctx, map[string]any{"by": int64(by / time.Second)})
}

// AdvanceTo is Advance to a time.
func (t TestClock) AdvanceTo(ctx context.Context, to time.Time) (Advanced, error) {
	return t.move(ctx, map[string]any{"to": to.UTC().Format(time.RFC3339Nano)})
}

// AdvanceToDue is Advance to the next second at which something is due. If nothing is, the
// clock stays, and Events is 0.
func (t TestClock) AdvanceToDue(ctx context.Context) (Advanced, error) {
	return t.move(ctx, map[string]any{"to": "due"})
}

// Drop removes the database with its log.
func (t TestClock) Drop(ctx context.Context) error {
	err := t.ask(ctx, "drop", nil, nil)
	if err == nil {
		t.c.lastSeq.Store(0) // a new log begins at 1
	}
	return err
}

func (t TestClock) move(ctx context.Context, body any) (Advanced, error) {
	var moved struct {
		Now    int64
		Seq    uint64
		Events int
	}
	err := t.ask(ctx, "advance", body, &moved)
	if err != nil {
		return Advanced{}, err
	}
	return Advanced{time.UnixMilli(moved.Now), moved.Seq, moved.Events}, nil
}

func (t TestClock) ask(ctx context.Context, operation string, body, into any) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, testClockTimeout)
		defer cancel()
	}
	var data []byte
	if body != nil {
		data, _ = json.Marshal(body) // strings and a number
	}
	answer, err := t.c.nc.RequestWithContext(ctx, t.c.database.TestSubjects()+operation, data)
	if errors.Is(err, nats.ErrNoResponders) {
		return ErrUnavailable.With("nobody moves clocks there: connect to a server that lapse test started")
	}
	if err != nil {
		return t.c.transportError(err)
	}
	reply, err := t.c.parseReply(answer)
	if err == nil && into != nil {
		err = decodeReply("", reply, into)
	}
	return err
}
