package eventlog

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// resumeInterval is how soon what NATS did not do is tried again, at first.
const ResumeInterval = 100 * time.Millisecond

// tryForever is how what NATS must do is tried until ctx ends: soon at first,
// and then every two seconds or so.
func TryForever(ctx context.Context) backoff.BackOffContext {
	return backoff.WithContext(backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(ResumeInterval),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0)), ctx)
}
