package snapshot

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

const (
	KeepSnapshots = keepSnapshots
	MetaSnapshot  = metaSnapshot
	MetaStream    = metaStream
	ObjectName    = objectName
	PadBytes      = padBytes
)

func (k *Retention) Round(ctx context.Context) error                        { return k.round(ctx) }
func (k *Retention) Refresh(ctx context.Context) ([]schema.Snapshot, error) { return k.refresh(ctx) }
func (k *Retention) Trim(ctx context.Context, sound []schema.Snapshot) error {
	return k.trim(ctx, sound)
}
func (k *Retention) Pad(ctx context.Context) error { return k.pad(ctx) }
func (k *Retention) Trimmed() uint64               { return k.trimmed.Load() }

// SwapJS replaces what the store reaches JetStream through, and returns what it was.
func (s *Store) SwapJS(js jetstream.JetStream) (before jetstream.JetStream) {
	s.Making.Lock() // a request may hold it until after its reply
	defer s.Making.Unlock()
	before, s.js = s.js, js
	return before
}
