package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Create makes a snapshot of the projection, reads it back and verifies it. It takes about
// as long as reading all documents twice. The caller holds Making.
//
// The order is what makes it safe to trim the log by it: the checkpoint is verified against
// its own digest before anything is stored; the snapshot is marked sound only after it was
// read back from JetStream; one that exists and is sound is checked and kept, rather than
// replaced. A kill in between leaves an unfinished snapshot, which later rounds remove.
// Folding goes on meanwhile: a checkpoint of Pebble is hard links.
func (s *Store) Create(ctx context.Context) (schema.Snapshot, error) {
	checkpoint := checkpointDir(s.dir)
	if err := errors.Join(ctx.Err(), s.checkSpace(), s.fs.RemoveAll(checkpoint)); err != nil {
		return schema.Snapshot{}, err
	}
	defer func() { _ = s.fs.RemoveAll(checkpoint) }()
	if err := s.Store.Checkpoint(checkpoint); err != nil {
		return schema.Snapshot{}, fmt.Errorf("copy the projection: %w", err)
	}
	cursor, digest, err := verifyProjection(ctx, s.fs, checkpoint)
	if ctx.Err() != nil {
		return schema.Snapshot{}, ctx.Err()
	} else if err != nil {
		return schema.Snapshot{}, fmt.Errorf("the projection is not sound, remove it and fold the log again: %w", err)
	}
	snap := storedSnapshot{cursor: cursor, stream: s.log.Identity(), Snapshot: schema.Snapshot{Seq: cursor.Seq,
		LogTime: cursor.Time, Digest: digest.String(), Created: s.Now(), Format: cursor.Format}}
	existing, ok, err := s.describe(ctx, cursor.Seq)
	if err == nil && ok && existing.Sound {
		existing.Snapshot, err = s.check(ctx, existing, openCopy)
	}
	if err != nil || existing.Sound {
		return existing.Snapshot, err
	}
	if err := s.remove(ctx, cursor.Seq); err != nil {
		return schema.Snapshot{}, err
	}
	store, err := s.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket:      s.bucket(cursor.Seq),
		Description: fmt.Sprintf("lapse: snapshot of database %s at %d", s.db, cursor.Seq),
		Replicas:    s.log.Stream.CachedInfo().Config.Replicas,
	})
	if err != nil {
		return schema.Snapshot{}, fmt.Errorf("snapshot %d: %w", cursor.Seq, err)
	}
	if err := s.fill(ctx, store, &snap, checkpoint); err != nil {
		// Remove the unfinished snapshot.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return schema.Snapshot{}, errors.Join(err, s.remove(cleanup, cursor.Seq))
	}
	return snap.Snapshot, nil
}

// checkSpace returns an error if the snapshot could fill the disk: it is stored, and stored
// once more while it is read back. On an external NATS server the projection's disk is
// checked all the same; that of the server has limits of its own.
func (s *Store) checkSpace() error {
	health := s.Store.Health()
	spare := spareBytes(health.Total)
	if need := 2*health.Bytes + spare; health.Total > 0 && health.Available < need {
		return fmt.Errorf("a snapshot may need %d bytes (two copies of the projection, and %d stay free) and the disk has %d: free some space", need, spare, health.Available)
	}
	return nil
}

// spareBytes is what a snapshot leaves free of a disk of total bytes.
func spareBytes(total uint64) uint64 { return min(64<<20, total/20) }

// cleanupTimeout is the timeout of removing an unfinished snapshot.
const cleanupTimeout = 5 * time.Second

// fill writes a checkpoint to its store, reads it back, and only then marks it sound. The
// archive goes through a pipe, so memory does not grow with it.
func (s *Store) fill(ctx context.Context, store jetstream.ObjectStore, snap *storedSnapshot, checkpoint string) error {
	meta, err := snap.meta()
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	var writing sync.WaitGroup
	writing.Go(func() { w.CloseWithError(projections.WriteArchive(w, s.fs, checkpoint)) })
	putting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { // see uploadPause
		time.Sleep(uploadPause)
		cancel()
	})()
	info, err := store.Put(putting, meta, &upload{ctx: ctx, store: store, from: r, abandon: cancel})
	_ = r.Close()
	writing.Wait()
	if err != nil {
		return fmt.Errorf("store snapshot %d: %w", snap.Seq, err)
	}
	if err := s.readBack(ctx, store, *snap, openCopy); err != nil {
		return err
	}
	snap.Bytes, snap.Sound = info.Size, true
	return snap.updateMeta(ctx, store)
}
