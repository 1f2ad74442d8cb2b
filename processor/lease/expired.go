package lease

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// NATS removes an expired key only while the bucket has a leader and JetStream has space
// for a marker. Without them the key stays, and any replica returns it: a standby would
// wait for ever. So it measures for how long it has read the same revision.

// observed is the lease of another process.
type observed struct {
	revision uint64
	since    time.Duration // when this revision was first read, as elapsed
}

// removalTime is how long NATS may take to remove an expired key.
const removalTime = 2 * time.Second

// expired reports whether the lease of another process, at this revision, has expired
// although NATS keeps it. The holder knows: it counts its TTL from an earlier time.
func (l *Lease) expired(ctx context.Context, revision uint64) (bool, error) {
	now := l.elapsed()
	if l.other.revision != revision {
		l.other = observed{revision, now}
	}
	age := now - l.other.since
	if age <= l.ttl+removalTime {
		return false, nil
	}
	ttl, err := l.theirTTL(ctx)
	return err == nil && age > ttl+removalTime, err
}

// theirTTL returns the TTL of the key, which is that of its holder's --lease.
func (l *Lease) theirTTL(ctx context.Context) (time.Duration, error) {
	stream, err := l.js.Stream(ctx, l.stream())
	if err != nil {
		return 0, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, l.subject())
	if err != nil {
		return 0, err
	}
	ttl, err := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
	if err != nil {
		return l.ttl, nil // lapse did not write it
	}
	return ttl, nil
}

// full reports whether JetStream replied that it stores nothing more.
func full(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(fullCodes, api.ErrorCode)
}

// fullCodes are JetStream's error codes for a limit of the account, of the server or
// of the stream.
var fullCodes = []jetstream.ErrorCode{10002, 10023, 10047, 10077}
