package client

import (
	"context"
	"sync"
	"time"
)

// absentWriter knows why no process receives writes, as of the last status of a standby.
type absentWriter struct {
	mu      sync.Mutex // held while a standby is asked
	askedAt time.Time
	why     string
}

// askAgain is how long a standby's reason is told to other writes, too: there may be
// thousands.
const askAgain = time.Second

// explain returns the error of a write that no process has received: err, or one with the
// reason that a standby gives.
func (a *absentWriter) explain(ctx context.Context, c *Client, err error) error {
	if !a.mu.TryLock() {
		return err // another write asks
	}
	defer a.mu.Unlock()
	if time.Since(a.askedAt) > askAgain {
		status, _ := c.Status(ctx) // nobody may answer that, either
		a.askedAt, a.why = time.Now(), status.CannotTakeOver
	}
	if a.why == "" {
		return err
	}
	return &failure{cause: err, coded: ErrUnavailable.With("no process can write database %q now: %s", c.database, a.why)}
}
