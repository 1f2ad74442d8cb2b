package eventlog

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// ResumeInterval is the first interval before a failed request to NATS is retried.
const ResumeInterval = 100 * time.Millisecond

// TryForever retries until ctx ends: soon at first, then about every two seconds.
func TryForever(ctx context.Context) backoff.BackOffContext {
	return backoff.WithContext(backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(ResumeInterval),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0)), ctx)
}
