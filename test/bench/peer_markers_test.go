package bench

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// kvMarkers names the peer for expiry: a NATS KV bucket whose keys have a TTL each, which
// stores a marker when a key has expired.
const kvMarkers = "NATS KV TTL markers"

// markers is such a bucket, on a server in a process of its own.
type markers struct {
	*versus.Process
	dir    string
	stream jetstream.Stream
}

const (
	markersBucket = "markers"
	markersPrefix = "$KV." + markersBucket + "."
)

func startMarkers(b *testing.B) *markers {
	b.Helper()
	dir := b.TempDir()
	ctx := context.Background()
	server := versus.StartNATSIn(b, dir, false)
	js := harness.JetStream(b, versus.Connect(b, server.URL))
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: markersBucket, Storage: jetstream.FileStorage, LimitMarkerTTL: 24 * time.Hour,
	}); err != nil {
		b.Fatal(err)
	}
	stream, err := js.Stream(ctx, "KV_"+markersBucket)
	check(b, err)
	return &markers{server, dir, stream}
}

// put stores keys from to to as Create with a TTL does, but without its expected revision
// and without waiting for each. It calls ttl when it sends a key.
func (k *markers) put(b *testing.B, from, to int, ttl func(n int) time.Duration) {
	b.Helper()
	inBatches(b, k.URL, from, to, func(nc *nats.Conn, from, to int) error {
		var failed atomic.Pointer[error]
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			failed.Store(&err)
		}))
		if err != nil {
			return err
		}
		defer js.CleanupPublisher()
		for n := from; n < to; n++ {
			if _, err := js.PublishAsync(markersPrefix+versus.ID(n), versus.Document(n), jetstream.WithMsgTTL(ttl(n))); err != nil {
				return err
			}
		}
		select {
		case <-js.PublishAsyncComplete():
		case <-time.After(timeout):
			return fmt.Errorf("keys %d to %d are not stored within %s", from, to, timeout)
		}
		if err := failed.Load(); err != nil {
			return *err
		}
		return nil
	})
}

func (k *markers) state() (jetstream.StreamState, error) {
	info, err := k.stream.Info(context.Background())
	if err != nil {
		return jetstream.StreamState{}, err
	}
	return info.State, nil
}

// marked reads all markers and calls do with the number of the key and the time at which
// the marker was stored.
func (k *markers) marked(b *testing.B, do func(n int, stored time.Time) error) {
	b.Helper()
	readAll(b, k.URL, "KV_"+markersBucket, markersPrefix+">", func(m jetstream.Msg, stored time.Time) error {
		if m.Headers().Get(jetstream.MarkerReasonHeader) != "MaxAge" {
			return nil
		}
		n, err := documentNumber(strings.TrimPrefix(m.Subject(), markersPrefix))
		if err != nil {
			return err
		}
		return do(n, stored)
	})
}

// stormOfKeys lets keys expire in about one second. NATS counts a TTL from the nanosecond at
// which the key was stored, so they are due within half a second of the beginning of that
// second.
func stormOfKeys(b *testing.B, keys int) versus.Rate {
	b.Helper()
	for _, rate := range stormLoads {
		k := startMarkers(b)
		due := dueAfter(keys, rate)
		k.put(b, 0, keys, func(int) time.Duration {
			return time.Duration(max(1, math.Round(time.Until(due).Seconds()))) * time.Second
		})
		if time.Until(due) > settled {
			return k.storm(b, keys, due)
		}
		k.end()
	}
	b.Fatal("keys are not stored in time")
	return versus.Rate{}
}

// storm measures until every key has its marker. NATS stores a second marker for keys
// that wait for longer than two seconds. So the end is the time of the last marker, or
// the time at which the last key was seen to be gone, if that was before.
func (k *markers) storm(b *testing.B, keys int, due time.Time) versus.Rate {
	b.Helper()
	defer k.end()
	if state, err := k.state(); err != nil || state.Msgs != uint64(keys) || state.LastSeq != uint64(keys) {
		b.Fatalf("%d keys are stored as %+v: %v", keys, state, err)
	}
	time.Sleep(time.Until(due))
	clock := versus.Start(k.PID)
	for {
		state, err := k.state()
		check(b, err)
		if state.FirstSeq > uint64(keys) {
			break // each key is removed once its marker is stored
		}
		if time.Since(due) > 10*timeout {
			b.Fatalf("not all keys expired within %s: %+v", 10*timeout, state)
		}
		time.Sleep(stormPoll)
	}
	took := time.Since(due)
	rate := clock.Stop(keys)
	var last time.Time
	seen := make([]bool, keys)
	marked := 0
	k.marked(b, func(n int, stored time.Time) error {
		if stored.Before(due.Add(-time.Second/2 - stormPoll)) {
			return fmt.Errorf("key %d expired at %s, due about %s", n, stored, due)
		}
		if !seen[n] {
			seen[n] = true
			marked++
		}
		last = stored
		return nil
	})
	if marked != keys {
		b.Fatalf("%d of %d keys have a marker", marked, keys)
	}
	rate.PerSecond = float64(keys) / min(took, last.Sub(due)).Seconds()
	return rate
}

// end removes the server.
func (k *markers) end() {
	k.Kill()
	_ = os.RemoveAll(k.dir)
}
