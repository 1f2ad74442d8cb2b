package eventlog

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// ResumeInterval is the first interval before a failed request to NATS is retried.
const ResumeInterval = 100 * time.Millisecond

// TryForever retries until ctx ends: soon at first, then about every two seconds.
func TryForever(ctx context.Context) backoff.BackOffContext { return tryFor(ctx, 0) }

// tryFor is TryForever that gives up after some time, if that is not 0.
func tryFor(ctx context.Context, most time.Duration) backoff.BackOffContext {
	return backoff.WithContext(backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(ResumeInterval),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(most)), ctx)
}
