package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Reading a snapshot back is the same for a verification and a restore: unpack it into a
// directory, open that as a projection, and compare cursor and digest with the metadata.
// Only a restore then renames the directory. So whatever can be restored was opened once.
//
// Most of this file is patience: an object comes in chunks from a stream whose leader may
// change, and nats.go waits without end for a chunk that is damaged. What makes no progress
// for stallTimeout fails, with the reason as far as JetStream tells it.

// readBack is download, and removes the directory afterwards.
func (s *Store) readBack(ctx context.Context, store jetstream.ObjectStore, snap storedSnapshot, read readFunc) error {
	defer func() { _ = s.fs.RemoveAll(verifyDir(s.dir)) }()
	return s.download(ctx, store, snap, read)
}

// download unpacks a snapshot to verifyDir and compares its cursor and digest with
// the metadata. It fails only if it makes no progress for stallTimeout.
func (s *Store) download(ctx context.Context, store jetstream.ObjectStore, snap storedSnapshot, read readFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unanswered := time.AfterFunc(stallTimeout, func() {
		cancel(fmt.Errorf("JetStream did not answer for %s: %w", stallTimeout, nats.ErrTimeout))
	})
	object, err := store.Get(pollContext{ctx}, objectName)
	unanswered.Stop()
	if err != nil {
		return fmt.Errorf("read snapshot %d: %w", snap.Seq, cmp.Or(context.Cause(ctx), err))
	}
	// Reads to the end of the object, where its checksum is compared.
	dir := verifyDir(s.dir)
	if err := errors.Join(projections.ReadArchive(&objectReader{ctx: ctx, store: store, object: object}, s.fs, dir), object.Close()); err != nil {
		return fmt.Errorf("read snapshot %d: %w", snap.Seq, err)
	}
	cursor, digest, err := read(ctx, s.fs, dir)
	want := snap.cursor
	switch {
	case err != nil:
		return fmt.Errorf("snapshot %d: %w", snap.Seq, err)
	case cursor != want || cursor.Stream != snap.stream:
		return fmt.Errorf("snapshot %d holds %+v, and should hold %+v", snap.Seq, cursor, want)
	case digest.String() != snap.Digest:
		return fmt.Errorf("snapshot %d has the digest %s, and should have %s", snap.Seq, digest, snap.Digest)
	}
	return nil
}

const (
	// stallTimeout is the longest time without a byte of an object: longer than nats.go
	// needs to notice a lost consumer and create another.
	stallTimeout = 15 * time.Second
	readPoll     = time.Second // how often a waiting read checks its context
)

// pollContext has a deadline that is always readPoll away. While an object of nats.go
// waits for bytes it checks only the deadline, and not whether the context has ended.
type pollContext struct{ context.Context }

func (pollContext) Deadline() (time.Time, bool) { return time.Now().Add(readPoll), true }

// objectReader reads an object opened with a pollContext, and fails when no more of it
// can be read: JetStream skips damaged messages, and nats.go waits for them.
type objectReader struct {
	ctx    context.Context
	store  jetstream.ObjectStore
	object jetstream.ObjectResult
	read   uint64
}

// Read reads what has arrived. It polls, since nats.go waits by the deadline alone: each
// readPoll it looks whether the context has ended, or nothing has come for stallTimeout.
func (r *objectReader) Read(p []byte) (int, error) {
	for began := time.Now(); ; {
		n, err := r.object.Read(p)
		r.read += uint64(n)
		switch {
		case n > 0 && errors.Is(err, os.ErrDeadlineExceeded):
			return n, nil
		case n > 0 || err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case r.ctx.Err() != nil:
			return 0, r.ctx.Err()
		case time.Since(began) > stallTimeout:
			return 0, r.stalled()
		}
	}
}

// stalled returns why no bytes arrive: the object is damaged if JetStream replies.
func (r *objectReader) stalled() error {
	ctx, cancel := context.WithTimeout(r.ctx, stallTimeout)
	defer cancel()
	if _, err := r.store.Status(ctx); err != nil {
		return fmt.Errorf("no data for %s: %w", stallTimeout, err)
	}
	return fmt.Errorf("JetStream can read %d bytes of it and no more: its stream is damaged", r.read)
}

// verifyCacheBytes is Pebble's cache size while a copy is verified.
const verifyCacheBytes = 16 << 20

// readFunc returns the cursor and digest of a projection that is not open.
type readFunc func(ctx context.Context, fs vfs.FS, dir string) (projections.Cursor, projections.Digest, error)

// openCopy is a readFunc that returns the stored digest.
func openCopy(_ context.Context, fs vfs.FS, dir string) (projections.Cursor, projections.Digest, error) {
	return read(fs, dir, func(s *projections.Store) (projections.Digest, error) { return s.Digest(), nil })
}

// verifyProjection is a readFunc that computes the digest from all documents.
func verifyProjection(ctx context.Context, fs vfs.FS, dir string) (projections.Cursor, projections.Digest, error) {
	return read(fs, dir, func(s *projections.Store) (projections.Digest, error) {
		digest, err := s.Verify(ctx)
		if err == nil && digest != s.Digest() {
			err = fmt.Errorf("its documents add up to %s, its digest is %s", digest, s.Digest())
		}
		return digest, err
	})
}

// read opens a copy without changing it, and returns its cursor and what digestOf makes of
// it. Damage that Pebble finds on the way is an error, too.
func read(fs vfs.FS, dir string, digestOf func(*projections.Store) (projections.Digest, error)) (projections.Cursor, projections.Digest, error) {
	store, err := projections.Open(dir, projections.Options{FS: fs, CacheBytes: verifyCacheBytes, ReadOnly: true})
	if err != nil {
		return projections.Cursor{}, projections.Digest{}, err
	}
	digest, err := digestOf(store)
	cursor := store.Cursor()
	select {
	case damage := <-store.Damaged():
		err = errors.Join(err, damage)
	default:
	}
	return cursor, digest, errors.Join(err, store.Close())
}

// Verify reads a snapshot back, computes its digest, and stores in its metadata if it is
// not sound. An error means that it could not be verified; ErrNoSnapshot that there is
// none at seq. The caller holds Making.
func (s *Store) Verify(ctx context.Context, seq uint64) (schema.Snapshot, error) {
	snap, ok, err := s.describe(ctx, seq)
	if err != nil {
		return snap.Snapshot, err
	}
	if !ok || snap.stream != "" && !s.log.Continues(snap.stream) {
		return snap.Snapshot, ErrNoSnapshot
	}
	if snap.Fault != "" {
		return snap.Snapshot, nil
	}
	return s.check(ctx, snap, verifyProjection)
}

// check is Verify of a described snapshot.
func (s *Store) check(ctx context.Context, snap storedSnapshot, read readFunc) (schema.Snapshot, error) {
	store, err := s.js.ObjectStore(ctx, s.bucket(snap.Seq))
	if err != nil {
		return snap.Snapshot, fmt.Errorf("snapshot %d: %w", snap.Seq, err)
	}
	fault := s.readBack(ctx, store, snap, read)
	if ctx.Err() != nil {
		return snap.Snapshot, ctx.Err()
	}
	// An unreachable object store or a full disk does not make it damaged.
	if unreachable(fault) || eventlog.Transient(fault) || errors.Is(fault, nats.ErrConnectionClosed) {
		return snap.Snapshot, fault
	}
	if snap.Sound = fault == nil; fault != nil {
		snap.Fault = fault.Error()
		if err := snap.updateMeta(ctx, store); err != nil {
			return snap.Snapshot, fmt.Errorf("it is not sound (%w), which could not be noted: %w", fault, err)
		}
	}
	return snap.Snapshot, nil
}

// Restore replaces the projection, which must not be open, with a snapshot, unless fits
// returns an error for its cursor. On an error the projection stays, but for one between
// the removal and the rename, after which the next start folds the log or restores again.
func (s *Store) Restore(ctx context.Context, snap storedSnapshot, fits func(projections.Cursor) error) error {
	defer func() { _ = s.fs.RemoveAll(verifyDir(s.dir)) }()
	store, err := s.js.ObjectStore(ctx, s.bucket(snap.Seq))
	if err != nil {
		return fmt.Errorf("snapshot %d: %w", snap.Seq, err)
	}
	if err := s.download(ctx, store, snap, openCopy); err != nil {
		return err
	}
	if err := fits(snap.cursor); err != nil {
		return err
	}
	return errors.Join(s.fs.RemoveAll(s.dir), s.fs.Rename(verifyDir(s.dir), s.dir))
}
