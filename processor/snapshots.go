package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// snapshots are the copies of the projection that JetStream keeps: from one of
// them and the log behind it the projection can be made anew, so the log below
// it may go.
//
// Each is the only object of an object store of its own. When a store is
// deleted, its files are; an object deleted from a store leaves its bytes there
// until JetStream finds it worth its while to rewrite them.
type snapshots struct {
	db     schema.DatabaseName
	js     jetstream.JetStream
	log    *eventLog          // that they are of; of any if nil
	store  *projections.Store // that copies are made of
	now    func() int64       // ms since 1970
	fs     vfs.FS
	dir    string // of the projection
	logger *slog.Logger

	making sync.Mutex // held while one is made or verified
}

// objectName is the name of the object in the store of a snapshot.
const objectName = "projection.tar.zst"

// What an object's metadata says.
const (
	metaStream   = "lapse-stream"   // identity of the log
	metaSnapshot = "lapse-snapshot" // schema.Snapshot as JSON
)

// snapshotsOf returns the snapshots of the log that is to be folded in dir.
func snapshotsOf(log *eventLog, o Options) *snapshots {
	return &snapshots{db: o.Database, js: log.js, log: log, fs: o.Projection.FS, dir: o.Dir, logger: o.Logger, now: o.Clock.millis}
}

// What is made on the way to a snapshot lies beside the projection, and may be
// left by a process that was killed.
func checkpointDir(dir string) string { return dir + ".checkpoint" }
func verifyDir(dir string) string     { return dir + ".verify" }

func (s *snapshots) bucket(seq uint64) string {
	return s.db.SnapshotStore() + strconv.FormatUint(seq, 10)
}

// List returns the snapshots of this log, newest first. Those that were never
// finished are not sound, and have nothing but their sequence.
func (s *snapshots) List(ctx context.Context) ([]schema.Snapshot, error) {
	names := s.js.ObjectStoreNames(ctx)
	var all []uint64
	for name := range names.Name() { // to the end, or somebody waits for ever to tell the next
		digits, ok := strings.CutPrefix(name, s.db.SnapshotStore())
		if seq, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			all = append(all, seq)
		}
	}
	if err := names.Error(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var list []schema.Snapshot
	for _, seq := range all {
		snapshot, ours, err := s.describe(ctx, seq)
		if err != nil {
			return nil, err
		}
		if ours {
			list = append(list, snapshot)
		}
	}
	slices.SortFunc(list, func(a, b schema.Snapshot) int { return int(min(max(int64(b.Seq-a.Seq), -1), 1)) })
	return list, nil
}

// describe reads what is known of one snapshot; ours is false if there is none,
// or it is one of another log.
func (s *snapshots) describe(ctx context.Context, seq uint64) (snapshot schema.Snapshot, ours bool, err error) {
	store, err := s.js.ObjectStore(ctx, s.bucket(seq))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return snapshot, false, nil
	} else if err != nil {
		return snapshot, false, fmt.Errorf("snapshot %d: %w", seq, err)
	}
	info, err := store.GetInfo(ctx, objectName)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return schema.Snapshot{Seq: seq, Fault: "it was never finished"}, true, nil
	} else if err != nil {
		return schema.Snapshot{Seq: seq, Fault: fmt.Sprintf("what is known of it cannot be read: %v", err)}, true, nil
	}
	if s.log != nil && info.Metadata[metaStream] != s.log.Identity() {
		return snapshot, false, nil
	}
	if err := json.Unmarshal([]byte(info.Metadata[metaSnapshot]), &snapshot); err != nil || snapshot.Seq != seq {
		return schema.Snapshot{Seq: seq, Fault: "what is said of it is not what lapse says"}, true, nil
	}
	snapshot.Bytes = info.Size
	return snapshot, true, nil
}

// errBusy means that a snapshot is being made or verified already.
var errBusy = errors.New("a snapshot is being made or verified: try again when that is done")

// Create makes a snapshot of the projection, reads it back and verifies it. It
// takes about as long as reading all documents twice.
func (s *snapshots) Create(ctx context.Context) (schema.Snapshot, error) {
	if !s.making.TryLock() {
		return schema.Snapshot{}, errBusy
	}
	defer s.making.Unlock()
	checkpoint := checkpointDir(s.dir)
	if err := s.fs.RemoveAll(checkpoint); err != nil {
		return schema.Snapshot{}, err
	}
	defer func() { _ = s.fs.RemoveAll(checkpoint) }()
	if err := s.store.Checkpoint(checkpoint); err != nil {
		return schema.Snapshot{}, fmt.Errorf("copy the projection: %w", err)
	}
	cursor, digest, err := verifyProjection(s.fs, checkpoint)
	if err != nil {
		return schema.Snapshot{}, fmt.Errorf("the projection is not sound, remove it and fold the log anew: %w", err)
	}
	snapshot := schema.Snapshot{Seq: cursor.Seq, LogTime: cursor.Time, Digest: digest.String(),
		Created: s.now(), Format: cursor.Format}
	if existing, ours, err := s.describe(ctx, cursor.Seq); err != nil || ours && existing.Sound {
		return existing, err
	}
	if err := s.remove(ctx, cursor.Seq); err != nil {
		return schema.Snapshot{}, err
	}
	store, err := s.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket:      s.bucket(cursor.Seq),
		Description: fmt.Sprintf("lapse: snapshot of database %s at %d", s.db, cursor.Seq),
	})
	if err != nil {
		return schema.Snapshot{}, fmt.Errorf("snapshot %d: %w", cursor.Seq, err)
	}
	if snapshot, err = s.fill(ctx, store, snapshot, checkpoint); err != nil {
		// What is not sound is of no use.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return schema.Snapshot{}, errors.Join(err, s.remove(cleanup, cursor.Seq))
	}
	return snapshot, nil
}

// cleanupTimeout is how long removing may take what could not be finished.
const cleanupTimeout = 5 * time.Second

// fill writes a checkpoint to its store, reads it back, and only then says that
// it is sound.
func (s *snapshots) fill(ctx context.Context, store jetstream.ObjectStore, snapshot schema.Snapshot, checkpoint string) (schema.Snapshot, error) {
	meta, err := s.meta(snapshot)
	if err != nil {
		return snapshot, err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(projections.WriteArchive(w, s.fs, checkpoint)) }()
	info, err := store.Put(ctx, meta, &upload{ctx: ctx, store: store, from: r})
	_ = r.Close()
	if err != nil {
		return snapshot, fmt.Errorf("store snapshot %d: %w", snapshot.Seq, err)
	}
	if err := s.readBack(ctx, store, snapshot, func(dir string) error { return s.check(dir, snapshot, false) }); err != nil {
		return snapshot, err
	}
	snapshot.Bytes, snapshot.Sound = info.Size, true
	if meta, err = s.meta(snapshot); err != nil {
		return snapshot, err
	}
	return snapshot, store.UpdateMeta(ctx, objectName, meta)
}

func (s *snapshots) meta(snapshot schema.Snapshot) (jetstream.ObjectMeta, error) {
	text, err := json.Marshal(snapshot)
	return jetstream.ObjectMeta{Name: objectName, Metadata: map[string]string{
		metaStream: s.log.Identity(), metaSnapshot: string(text)}}, err
}

// readBack restores a snapshot beside the projection, for look to look at.
func (s *snapshots) readBack(ctx context.Context, store jetstream.ObjectStore, snapshot schema.Snapshot, look func(dir string) error) error {
	dir := verifyDir(s.dir)
	defer func() { _ = s.fs.RemoveAll(dir) }()
	if err := s.download(ctx, store, snapshot, dir); err != nil {
		return err
	}
	return look(dir)
}

// download restores a snapshot in dir, whatever is there.
func (s *snapshots) download(ctx context.Context, store jetstream.ObjectStore, snapshot schema.Snapshot, dir string) error {
	object, err := store.Get(ctx, objectName)
	if err != nil {
		return fmt.Errorf("read snapshot %d: %w", snapshot.Seq, err)
	}
	// To the end of the object, where its checksum is compared.
	if err := errors.Join(projections.ReadArchive(object, s.fs, dir), object.Close()); err != nil {
		return fmt.Errorf("read snapshot %d: %w", snapshot.Seq, err)
	}
	return nil
}

// check opens a restored snapshot and compares it with what is said of it.
func (s *snapshots) check(dir string, snapshot schema.Snapshot, deep bool) error {
	look := openCopy
	if deep {
		look = verifyProjection
	}
	cursor, digest, err := look(s.fs, dir)
	switch {
	case err != nil:
		return fmt.Errorf("snapshot %d: %w", snapshot.Seq, err)
	case s.log != nil && cursor.Stream != s.log.Identity():
		return fmt.Errorf("snapshot %d is of another log", snapshot.Seq)
	case cursor.Seq != snapshot.Seq || digest.String() != snapshot.Digest:
		return fmt.Errorf("snapshot %d holds %d with digest %s, and should have %s", snapshot.Seq, cursor.Seq, digest, snapshot.Digest)
	}
	return nil
}

// verifyCacheBytes is Pebble's cache while a copy is read from end to end.
const verifyCacheBytes = 16 << 20

// openCopy returns the cursor of a projection that nobody else has open, and
// the digest that it says it has.
func openCopy(fs vfs.FS, dir string) (projections.Cursor, projections.Digest, error) {
	return look(fs, dir, func(s *projections.Store) (projections.Digest, error) { return s.Digest(), nil })
}

// verifyProjection is openCopy, after counting all documents.
func verifyProjection(fs vfs.FS, dir string) (projections.Cursor, projections.Digest, error) {
	return look(fs, dir, func(s *projections.Store) (projections.Digest, error) {
		digest, err := s.Verify()
		if err == nil && digest != s.Digest() {
			err = fmt.Errorf("its documents add up to %s, its digest is %s", digest, s.Digest())
		}
		return digest, err
	})
}

func look(fs vfs.FS, dir string, digestOf func(*projections.Store) (projections.Digest, error)) (projections.Cursor, projections.Digest, error) {
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

// Verify reads a snapshot back, counts its documents and tells whether it is
// sound. An error means that this could not be found out.
func (s *snapshots) Verify(ctx context.Context, seq uint64) (schema.Snapshot, error) {
	if !s.making.TryLock() {
		return schema.Snapshot{}, errBusy
	}
	defer s.making.Unlock()
	snapshot, ours, err := s.describe(ctx, seq)
	if err != nil {
		return snapshot, err
	}
	if !ours {
		return snapshot, errNoSnapshot
	}
	if snapshot.Fault != "" {
		return snapshot, nil
	}
	store, err := s.js.ObjectStore(ctx, s.bucket(seq))
	if err != nil {
		return snapshot, fmt.Errorf("snapshot %d: %w", seq, err)
	}
	snapshot.Sound = true
	if err := s.readBack(ctx, store, snapshot, func(dir string) error { return s.check(dir, snapshot, true) }); err != nil {
		if ctx.Err() != nil {
			return snapshot, ctx.Err()
		}
		snapshot.Sound, snapshot.Fault = false, err.Error()
	}
	return snapshot, nil
}

var errNoSnapshot = errors.New("there is no such snapshot of this log: list them to see which there are")

// Restore makes the projection's directory what a snapshot has, instead of
// what is there. The projection must not be open.
func (s *snapshots) Restore(ctx context.Context, snapshot schema.Snapshot) error {
	store, err := s.js.ObjectStore(ctx, s.bucket(snapshot.Seq))
	if err != nil {
		return fmt.Errorf("snapshot %d: %w", snapshot.Seq, err)
	}
	if err := s.download(ctx, store, snapshot, s.dir); err != nil {
		return err
	}
	return s.check(s.dir, snapshot, false)
}

// remove deletes a snapshot, finished or not, if there is one.
func (s *snapshots) remove(ctx context.Context, seq uint64) error {
	err := s.js.DeleteObjectStore(ctx, s.bucket(seq))
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove snapshot %d: %w", seq, err)
	}
	return nil
}

// upload has an object store take chunks of full size, and no more of them at a
// time than uploadAhead: it would take all there are, and keep them in memory.
type upload struct {
	ctx    context.Context
	store  jetstream.ObjectStore
	from   io.Reader
	sent   uint64
	stored uint64
}

const (
	uploadAhead = 32 << 20
	uploadPause = 5 * time.Millisecond

	uploadTimeout = 10 * time.Second
)

func (u *upload) Read(chunk []byte) (int, error) {
	if err := u.await(uploadAhead); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(u.from, chunk)
	u.sent += uint64(n)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = nil // the next call says that this is the end
	case errors.Is(err, io.EOF):
		// nats.go has by now started a goroutine that it asks to end when all
		// is sent. Asked before it has run at all, it waits for ever.
		time.Sleep(uploadPause)
		if lost := u.await(0); lost != nil {
			err = lost
		}
	}
	return n, err
}

// await returns when no more than so many bytes are still to be stored.
func (u *upload) await(ahead uint64) error {
	for last := time.Now(); u.sent > u.stored+ahead; time.Sleep(uploadPause) {
		status, err := u.store.Status(u.ctx)
		if err != nil {
			return err
		}
		if stored := status.Size(); stored > u.stored {
			u.stored, last = stored, time.Now()
		} else if time.Since(last) > uploadTimeout {
			return fmt.Errorf("the object store has taken %d of %d bytes, and no more for %s", stored, u.sent, uploadTimeout)
		}
	}
	return nil
}
