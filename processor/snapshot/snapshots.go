package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
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
type Store struct {
	db     schema.DatabaseName
	JS     jetstream.JetStream
	log    *eventlog.Log      // that they are of; of any if nil
	Store  *projections.Store // that copies are made of
	Now    func() int64       // ms since 1970
	fs     vfs.FS
	dir    string // of the projection
	events observe.EventListener

	Making sync.Mutex // held while one is made, verified or removed
}

// storedSnapshot is one as JetStream keeps it.
type storedSnapshot struct {
	schema.Snapshot
	stream string             // identity of the log that it is of
	cursor projections.Cursor // in it
	// lost says that it is of another log, or of a stretch that the log has lost.
	lost bool
	// given says that an operator has given up what the log has lost up to there.
	given bool
	// unknown is why nothing could be learnt of it now.
	unknown error
}

// objectName is the name of the object in the store of a snapshot.
const ObjectName = "projection.tar.zst"

// What an object's metadata says.
const (
	MetaStream   = "lapse-stream"   // identity of the log
	MetaSnapshot = "lapse-snapshot" // schema.Snapshot as JSON
	metaCursor   = "lapse-cursor"   // projections.Cursor as JSON
	metaGiven    = "lapse-given-up" // not empty if the log may lack what is in it
)

// snapshotConfig says what snapshots are made of, and how often; see Options.
type Config struct {
	eventlog.Config
	Dir           string
	Projection    projections.Options
	Retain        time.Duration
	SnapshotEvery time.Duration
	Clock         clock.Clock
	Doing         func(string) // told what goes on at a start
	AcceptLostEnd bool
	Alone         bool // no other process can write, and no stream has a new leader
}

// snapshotsOf returns the snapshots of the log that is to be folded in o.Dir, or
// of any log of the database if that is nil.
func NewStore(js jetstream.JetStream, log *eventlog.Log, o Config) *Store {
	return &Store{db: o.Database, JS: js, log: log, fs: o.Projection.FS, dir: o.Dir, events: o.Events, Now: o.Clock.Millis}
}

// What is made on the way to a snapshot lies beside the projection, and may be
// left by a process that was killed.
func checkpointDir(dir string) string { return dir + ".checkpoint" }
func verifyDir(dir string) string     { return dir + ".verify" }

func (s *Store) Bucket(seq uint64) string {
	return s.db.SnapshotStore() + strconv.FormatUint(seq, 10)
}

// List returns the snapshots of this log, newest first.
func (s *Store) List(ctx context.Context) ([]schema.Snapshot, error) {
	all, err := s.all(ctx)
	list := make([]schema.Snapshot, 0, len(all))
	for _, one := range all {
		if one.stream == "" || one.stream == s.log.Identity() {
			list = append(list, one.Snapshot)
		}
	}
	return list, err
}

// all returns what snapshots there are of the database, newest first, also of
// other logs. Those that were never finished have nothing but their sequence.
// One that does not go with the log as it is now is not sound, nor is one of which
// nothing can be learnt: that one keeps nobody from the others.
func (s *Store) all(ctx context.Context) (all []storedSnapshot, err error) {
	names := s.JS.ObjectStoreNames(ctx)
	var seqs []uint64
	for name := range names.Name() { // to the end, or somebody waits for ever to tell the next
		digits, ok := strings.CutPrefix(name, s.db.SnapshotStore())
		if seq, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			seqs = append(seqs, seq)
		}
	}
	if err := names.Error(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	slices.SortFunc(seqs, func(a, b uint64) int { return cmp.Compare(b, a) })
	described := make([]storedSnapshot, len(seqs))
	there := make([]bool, len(seqs))
	var asking sync.WaitGroup // at once: a stream that recovers badly may not answer
	for i, seq := range seqs {
		asking.Go(func() {
			one, ok, err := s.describe(ctx, seq)
			if err != nil {
				one = storedSnapshot{Snapshot: schema.Snapshot{Seq: seq, Fault: "it cannot be read now: " + err.Error()}, unknown: err}
			}
			described[i], there[i] = one, ok || err != nil
		})
	}
	asking.Wait()
	for i, one := range described {
		if there[i] {
			all = append(all, one)
		}
	}
	return all, ctx.Err()
}

// known is all for whoever removes snapshots: an error means that it could not be
// found out how all of them stand.
func (s *Store) known(ctx context.Context) (all []storedSnapshot, err error) {
	if all, err = s.all(ctx); err != nil {
		return nil, err
	}
	for _, one := range all {
		if one.unknown != nil {
			return nil, fmt.Errorf("snapshot %d: %w", one.Seq, one.unknown)
		}
	}
	return all, nil
}

// describe reads what is known of one snapshot; ok is false if there is none.
func (s *Store) describe(ctx context.Context, seq uint64) (one storedSnapshot, ok bool, err error) {
	one.Seq = seq
	store, err := s.JS.ObjectStore(ctx, s.Bucket(seq))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return one, false, nil
	} else if err != nil {
		return one, false, err
	}
	info, err := store.GetInfo(ctx, ObjectName)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		one.Fault = "it was never finished, or its stream is damaged"
		return one, true, nil
	} else if err != nil && !errors.Is(err, jetstream.ErrBadObjectMeta) {
		return one, false, err
	}
	if err == nil {
		one.stream, one.given = info.Metadata[MetaStream], info.Metadata[metaGiven] != ""
		err = errors.Join(json.Unmarshal([]byte(info.Metadata[MetaSnapshot]), &one.Snapshot), json.Unmarshal([]byte(info.Metadata[metaCursor]), &one.cursor))
	}
	if err != nil || one.Seq != seq {
		one.Snapshot = schema.Snapshot{Seq: seq, Fault: "what is said of it is not what lapse says"}
		return one, true, nil
	}
	one.Bytes = info.Size
	if one.Sound && s.log != nil {
		why := "it is of another"
		if one.stream == s.log.Identity() {
			if why, err = Mismatch(ctx, s.log, one.cursor); errors.Is(err, eventlog.ErrGap) {
				why, err = err.Error(), nil
			}
		}
		if err != nil {
			return one, false, err
		}
		if why != "" {
			one.lost, one.Sound, one.Fault = true, false, "it does not go with the log: "+why
		}
	}
	return one, true, nil
}

// give has the snapshots of what the log has lost say that it is given up, so
// that they keep no later start from going on without.
func (s *Store) give(ctx context.Context, all []storedSnapshot) error {
	for _, one := range all {
		if !one.lost || one.given || one.stream != s.log.Identity() {
			continue
		}
		store, err := s.JS.ObjectStore(ctx, s.Bucket(one.Seq))
		if err == nil {
			one.given, one.Sound, one.Fault = true, true, "" // as it was
			err = one.tell(ctx, store)
		}
		if err != nil {
			return fmt.Errorf("snapshot %d: %w", one.Seq, err)
		}
	}
	return nil
}

// errBusy means that a snapshot is being made or verified already.
var ErrBusy = errors.New("a snapshot is being made or verified: try again when that is done")

// Create makes a snapshot of the projection, reads it back and verifies it. It
// takes about as long as reading all documents twice. making is held.
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
		return schema.Snapshot{}, fmt.Errorf("the projection is not sound, remove it and fold the log anew: %w", err)
	}
	one := storedSnapshot{cursor: cursor, stream: s.log.Identity(), Snapshot: schema.Snapshot{Seq: cursor.Seq,
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
	store, err := s.JS.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket:      s.Bucket(cursor.Seq),
		Description: fmt.Sprintf("lapse: snapshot of database %s at %d", s.db, cursor.Seq),
		Replicas:    s.log.Stream.CachedInfo().Config.Replicas,
	})
	if err != nil {
		return schema.Snapshot{}, fmt.Errorf("snapshot %d: %w", cursor.Seq, err)
	}
	if err := s.fill(ctx, store, &one, checkpoint); err != nil {
		// What is not sound is of no use.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return schema.Snapshot{}, errors.Join(err, s.remove(cleanup, cursor.Seq))
	}
	return one.Snapshot, nil
}

// checkSpace refuses what would fill the disk, which would end more than the
// snapshot: it is stored, and once more while it is read back.
func (s *Store) checkSpace() error {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		return nil // a file system that does not say
	}
	if need := 2*s.Store.DiskUsage() + spareBytes; usage.AvailBytes < need {
		return fmt.Errorf("a snapshot may need %d bytes and the disk has %d: free some space", need, usage.AvailBytes)
	}
	return nil
}

// spareBytes is what a snapshot leaves free.
const spareBytes = 64 << 20

// cleanupTimeout is how long removing may take what could not be finished.
const cleanupTimeout = 5 * time.Second

// fill writes a checkpoint to its store, reads it back, and only then says that
// it is sound.
func (s *Store) fill(ctx context.Context, store jetstream.ObjectStore, one *storedSnapshot, checkpoint string) error {
	meta, err := one.meta()
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	var writing sync.WaitGroup
	writing.Go(func() { w.CloseWithError(projections.WriteArchive(w, s.fs, checkpoint)) })
	putting, cancel := context.WithCancel(ctx)
	defer cancel()
	info, err := store.Put(putting, meta, &Upload{Ctx: ctx, Store: store, From: r, abandon: cancel})
	_ = r.Close()
	writing.Wait()
	if err != nil {
		return fmt.Errorf("store snapshot %d: %w", one.Seq, err)
	}
	if err := s.readBack(ctx, store, *one, openCopy); err != nil {
		return err
	}
	one.Bytes, one.Sound = info.Size, true
	return one.tell(ctx, store)
}

// tell has the object say what is known of it.
func (one *storedSnapshot) tell(ctx context.Context, store jetstream.ObjectStore) error {
	meta, err := one.meta()
	if err != nil {
		return err
	}
	return store.UpdateMeta(ctx, ObjectName, meta)
}

func (one *storedSnapshot) meta() (jetstream.ObjectMeta, error) {
	snapshot, err := json.Marshal(one.Snapshot)
	if err != nil {
		return jetstream.ObjectMeta{}, err
	}
	cursor, err := json.Marshal(one.cursor)
	meta := jetstream.ObjectMeta{Name: ObjectName, Metadata: map[string]string{
		MetaStream: one.stream, MetaSnapshot: string(snapshot), metaCursor: string(cursor)}}
	if one.given {
		meta.Metadata[metaGiven] = "lost"
	}
	return meta, err
}

// readBack restores a snapshot beside the projection and compares it with what
// is said of it. What is restored is gone afterwards.
func (s *Store) readBack(ctx context.Context, store jetstream.ObjectStore, one storedSnapshot, look lookFunc) error {
	defer func() { _ = s.fs.RemoveAll(verifyDir(s.dir)) }()
	return s.download(ctx, store, one, look)
}

// download restores a snapshot beside the projection and compares it with what
// is said of it. It may take as long as it goes on.
func (s *Store) download(ctx context.Context, store jetstream.ObjectStore, one storedSnapshot, look lookFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unanswered := time.AfterFunc(stallTimeout, func() {
		cancel(fmt.Errorf("JetStream did not answer for %s: %w", stallTimeout, nats.ErrTimeout))
	})
	object, err := store.Get(pollContext{ctx}, ObjectName)
	unanswered.Stop()
	if err != nil {
		return fmt.Errorf("read snapshot %d: %w", one.Seq, cmp.Or(context.Cause(ctx), err))
	}
	// To the end of the object, where its checksum is compared.
	dir := verifyDir(s.dir)
	if err := errors.Join(projections.ReadArchive(&objectReader{ctx: ctx, store: store, object: object}, s.fs, dir), object.Close()); err != nil {
		return fmt.Errorf("read snapshot %d: %w", one.Seq, err)
	}
	cursor, digest, err := look(ctx, s.fs, dir)
	switch {
	case err != nil:
		return fmt.Errorf("snapshot %d: %w", one.Seq, err)
	case cursor != one.cursor || cursor.Stream != one.stream:
		return fmt.Errorf("snapshot %d holds %+v, and should hold %+v", one.Seq, cursor, one.cursor)
	case digest.String() != one.Digest:
		return fmt.Errorf("snapshot %d has the digest %s, and should have %s", one.Seq, digest, one.Digest)
	}
	return nil
}

const (
	// stallTimeout is how long nothing of an object may come: longer than nats.go
	// takes to notice that its consumer has gone, and to make another.
	stallTimeout = 15 * time.Second
	readPoll     = time.Second // how often a read that waits looks at its context
)

// pollContext has a deadline that is always readPoll away. The objects of nats.go
// look at nothing else while they wait for bytes: neither whether the context has
// ended, nor whether any can come.
type pollContext struct{ context.Context }

func (pollContext) Deadline() (time.Time, bool) { return time.Now().Add(readPoll), true }

// objectReader reads an object that was got with a pollContext, and ends when no
// more of it can be read: JetStream passes over messages that are damaged, and
// nats.go waits for them.
type objectReader struct {
	ctx    context.Context
	store  jetstream.ObjectStore
	object jetstream.ObjectResult
	read   uint64
}

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

// stalled says why nothing comes any more: the object is damaged if JetStream
// answers all the same.
func (r *objectReader) stalled() error {
	ctx, cancel := context.WithTimeout(r.ctx, stallTimeout)
	defer cancel()
	if _, err := r.store.Status(ctx); err != nil {
		return fmt.Errorf("nothing came for %s: %w", stallTimeout, err)
	}
	return fmt.Errorf("JetStream can read %d bytes of it and no more: its stream is damaged", r.read)
}

// verifyCacheBytes is Pebble's cache while a copy is read from end to end.
const verifyCacheBytes = 16 << 20

// lookFunc returns the cursor and digest of a projection that nobody has open.
type lookFunc func(ctx context.Context, fs vfs.FS, dir string) (projections.Cursor, projections.Digest, error)

// openCopy is a lookFunc: the digest is that which the projection says it has.
func openCopy(_ context.Context, fs vfs.FS, dir string) (projections.Cursor, projections.Digest, error) {
	return look(fs, dir, func(s *projections.Store) (projections.Digest, error) { return s.Digest(), nil })
}

// verifyProjection is openCopy, after counting all documents.
func verifyProjection(ctx context.Context, fs vfs.FS, dir string) (projections.Cursor, projections.Digest, error) {
	return look(fs, dir, func(s *projections.Store) (projections.Digest, error) {
		digest, err := s.Verify(ctx)
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
// sound; from then on it is known. An error means that this could not be found
// out. making is held.
func (s *Store) Verify(ctx context.Context, seq uint64) (schema.Snapshot, error) {
	one, ok, err := s.describe(ctx, seq)
	if err != nil {
		return one.Snapshot, err
	}
	if !ok || one.stream != "" && one.stream != s.log.Identity() {
		return one.Snapshot, ErrNoSnapshot
	}
	if one.Fault != "" {
		return one.Snapshot, nil
	}
	return s.check(ctx, one, verifyProjection)
}

// check is Verify of a snapshot that is described.
func (s *Store) check(ctx context.Context, one storedSnapshot, look lookFunc) (schema.Snapshot, error) {
	store, err := s.JS.ObjectStore(ctx, s.Bucket(one.Seq))
	if err != nil {
		return one.Snapshot, fmt.Errorf("snapshot %d: %w", one.Seq, err)
	}
	fault := s.readBack(ctx, store, one, look)
	if ctx.Err() != nil {
		return one.Snapshot, ctx.Err()
	}
	// That it cannot be reached, or that there is no room to unpack it, does not
	// make it a bad one.
	if unreachable(fault) || eventlog.Transient(fault) || errors.Is(fault, nats.ErrConnectionClosed) {
		return one.Snapshot, fault
	}
	if one.Sound = fault == nil; fault != nil {
		one.Fault = fault.Error()
		if err := one.tell(ctx, store); err != nil {
			return one.Snapshot, fmt.Errorf("it is not sound (%w), which could not be noted: %w", fault, err)
		}
	}
	return one.Snapshot, nil
}

var ErrNoSnapshot = errors.New("there is no such snapshot of this log: list them to see which there are")

// Restore puts a snapshot in the place of the projection, which must not be
// open, if fits says that it is one to take. Until then the projection stays.
func (s *Store) Restore(ctx context.Context, one storedSnapshot, fits func(projections.Cursor) error) error {
	defer func() { _ = s.fs.RemoveAll(verifyDir(s.dir)) }()
	store, err := s.JS.ObjectStore(ctx, s.Bucket(one.Seq))
	if err != nil {
		return fmt.Errorf("snapshot %d: %w", one.Seq, err)
	}
	if err := s.download(ctx, store, one, openCopy); err != nil {
		return err
	}
	if err := fits(one.cursor); err != nil {
		return err
	}
	return errors.Join(s.fs.RemoveAll(s.dir), s.fs.Rename(verifyDir(s.dir), s.dir))
}

// remove deletes a snapshot, finished or not, if there is one.
func (s *Store) remove(ctx context.Context, seq uint64) error {
	err := s.JS.DeleteObjectStore(ctx, s.Bucket(seq))
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove snapshot %d: %w", seq, err)
	}
	return nil
}

// upload has an object store take chunks of full size, and no more of them at a
// time than uploadAhead: it would take all there are, and keep them in memory.
type Upload struct {
	Ctx    context.Context
	Store  jetstream.ObjectStore
	From   io.Reader
	sent   uint64
	stored uint64
	// abandon, if there is one, ends what nats.go waits for when all is sent.
	abandon context.CancelFunc
}

const (
	uploadAhead = 32 << 20
	uploadPause = 5 * time.Millisecond

	uploadTimeout = 10 * time.Second
)

func (u *Upload) Read(chunk []byte) (n int, err error) {
	defer func() {
		if err != nil && u.abandon != nil {
			time.AfterFunc(stallTimeout, u.abandon)
		}
	}()
	if err := u.await(uploadAhead); err != nil {
		return 0, err
	}
	n, err = io.ReadFull(u.From, chunk)
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
func (u *Upload) await(ahead uint64) error {
	for last := time.Now(); u.sent > u.stored+ahead; time.Sleep(uploadPause) {
		status, err := u.Store.Status(u.Ctx)
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
