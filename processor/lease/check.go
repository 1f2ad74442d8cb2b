package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// Check returns an error if the lease's bucket exists and is not one of lapse. It ignores
// keys other than Key: later versions may have some.
func Check(ctx context.Context, nc *nats.Conn, db schema.DatabaseName, replicas int) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	name := db.LeaseBucket()
	kv, err := js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	mismatch := func(why string) error {
		return fmt.Errorf("KV bucket %s exists but is not a lapse lease (%s): remove it with `nats kv del %s`, or serve another --database", name, why, name)
	}
	switch {
	case errors.Is(err, jetstream.ErrBadBucket):
		return mismatch(err.Error())
	case err != nil: // it may have no leader yet
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	config := status.Config()
	switch {
	case config.LimitMarkerTTL == 0:
		return mismatch("its keys have no ttl")
	case config.TTL > 0:
		return mismatch(fmt.Sprintf("it has a ttl of %s for all keys", config.TTL))
	case replicas > 0 && config.Replicas != replicas:
		return fmt.Errorf("KV bucket %s has %d replica(s), and --replicas says %d: change it with `nats stream edit KV_%s --replicas %d`, or start without --replicas",
			name, config.Replicas, replicas, name, replicas)
	}
	entry, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	} else if err != nil {
		return fmt.Errorf("bucket %s: %w", name, err)
	}
	if _, err := readHolder(entry.Value()); err != nil {
		return mismatch(err.Error())
	}
	return nil
}
