package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Store holds the snapshots of a database: copies of the projection in JetStream. The
// projection can be rebuilt from a snapshot and the log after it, so the log below it
// may be trimmed.
//
// Each snapshot is the only object of its own object store. Deleting a store deletes
// its files; deleting an object leaves its bytes until JetStream compacts them.
type Store struct {
	db     schema.DatabaseName
	js     jetstream.JetStream
	log    *eventlog.Log      // whose snapshots they are; nil for any log of the database
	Store  *projections.Store // the projection to copy
	Now    func() int64       // Unix ms
	fs     vfs.FS
	dir    string // of the projection
	events observe.EventListener

	Making sync.Mutex // held while a snapshot is made, verified or removed
}

// storedSnapshot is a snapshot as JetStream keeps it. Its states:
//
//	unfinished  ─► sound ─► lost (it no longer matches the log)
//	    │            └────► faulty (read back and found damaged)
//	    └──► removed by the next round
//
// Sound, Fault and the cursor are in the object's metadata; lost is found out whenever it
// is described.
type storedSnapshot struct {
	schema.Snapshot
	stream     string             // identity of its log
	cursor     projections.Cursor // of its projection
	lost       bool               // it does not match the log: another log, or events that the log has lost
	givenUp    bool               // an operator accepted the loss, with --accept-lost-end
	unreadable error              // why its metadata could not be read now
}

// objectName is the name of the object in a snapshot's object store.
const objectName = "projection.tar.zst"

// Keys of an object's metadata.
const (
	metaStream   = "lapse-stream"   // identity of the log
	metaSnapshot = "lapse-snapshot" // schema.Snapshot as JSON
	metaCursor   = "lapse-cursor"   // projections.Cursor as JSON
	metaGivenUp  = "lapse-given-up" // not empty if givenUp
)

// Config configures snapshots and retention.
type Config struct {
	eventlog.Config
	Dir           string // of the projection
	Projection    projections.Options
	Retain        time.Duration // how long the log is kept; 0 for ever
	SnapshotEvery time.Duration // 0 for never
	Clock         clock.Clock
	Doing         func(string) // called with each phase of a start
	AcceptLostEnd bool         // start although the log has lost its end
	Alone         bool         // no other process can write, and no stream gets a new leader
}

// NewStore returns the snapshots of log, or of any log of the database if log is nil.
func NewStore(js jetstream.JetStream, log *eventlog.Log, o Config) *Store {
	return &Store{db: o.Database, js: js, log: log, fs: o.Projection.FS, dir: o.Dir, events: o.Events, Now: o.Clock.Millis}
}

// The temporary directories of a snapshot, beside the projection; a killed process
// leaves them.
func checkpointDir(dir string) string { return dir + ".checkpoint" }
func verifyDir(dir string) string     { return dir + ".verify" }

// bucket returns the name of the object store of the snapshot at seq.
func (s *Store) bucket(seq uint64) string {
	return s.db.SnapshotStore() + strconv.FormatUint(seq, 10)
}

// List returns the snapshots of this log, newest first.
func (s *Store) List(ctx context.Context) ([]schema.Snapshot, error) {
	all, err := s.all(ctx)
	list := make([]schema.Snapshot, 0, len(all))
	for _, snap := range all {
		if snap.stream == "" || s.log.Continues(snap.stream) {
			list = append(list, snap.Snapshot)
		}
	}
	return list, err
}

// all returns all snapshots of the database, newest first, also those of other logs. An
// unfinished one has only its sequence. One that does not match the log is not sound, nor
// is one that is unreadable, which is no error here. It asks for all of them at the same
// time.
func (s *Store) all(ctx context.Context) (all []storedSnapshot, err error) {
	// Unlike its other requests, nats.go would wait for this reply for ever.
	listing, cancel := context.WithTimeout(ctx, s.js.Options().DefaultTimeout)
	defer cancel()
	names := s.js.ObjectStoreNames(listing)
	var seqs []uint64
	for name := range names.Name() { // to the end, or the sender leaks
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
	var asking sync.WaitGroup // concurrently: a damaged stream may not reply
	for i, seq := range seqs {
		asking.Go(func() {
			snap, ok, err := s.describe(ctx, seq)
			if err != nil {
				snap = storedSnapshot{Snapshot: schema.Snapshot{Seq: seq, Fault: "it cannot be read now: " + err.Error()}, unreadable: err}
			}
			described[i], there[i] = snap, ok || err != nil
		})
	}
	asking.Wait()
	for i, snap := range described {
		if there[i] {
			all = append(all, snap)
		}
	}
	return all, ctx.Err()
}

// Newest returns the sequence of the newest sound snapshot of any log of a database, 0 if there
// is none.
func Newest(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName) (seq uint64, err error) {
	all, err := (&Store{db: db, js: js}).all(ctx)
	for _, snap := range all {
		if snap.Sound {
			return snap.Seq, err
		}
	}
	return 0, err
}

// EachHeld visits the held documents of the newest sound snapshot of a log of a database, and
// returns its sequence, 0 if there is none. The files are in dir meanwhile.
func EachHeld(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName, ofLog func(identity string) bool, dir string, visit func(schema.CollectionName, schema.DocumentID)) (seq uint64, err error) {
	s := &Store{db: db, js: js, fs: vfs.Default, dir: dir}
	all, err := s.all(ctx)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(snap storedSnapshot) bool { return snap.Sound && ofLog(snap.stream) })
	if i < 0 {
		return 0, nil
	}
	store, err := js.ObjectStore(ctx, s.bucket(all[i].Seq))
	if err != nil {
		return 0, fmt.Errorf("snapshot %d: %w", all[i].Seq, err)
	}
	return all[i].Seq, s.readBack(ctx, store, all[i], func(_ context.Context, fs vfs.FS, dir string) (projections.Cursor, projections.Digest, error) {
		return read(fs, dir, func(p *projections.Store) (projections.Digest, error) { return p.Digest(), p.EachHeld(visit) })
	})
}

// readable is all, with an error if any is unreadable, for callers that remove
// snapshots.
func (s *Store) readable(ctx context.Context) (all []storedSnapshot, err error) {
	if all, err = s.all(ctx); err != nil {
		return nil, err
	}
	for _, snap := range all {
		if snap.unreadable != nil {
			return nil, fmt.Errorf("snapshot %d: %w", snap.Seq, snap.unreadable)
		}
	}
	return all, nil
}

// describe reads the metadata of the snapshot at seq; ok is false if there is none.
func (s *Store) describe(ctx context.Context, seq uint64) (snap storedSnapshot, ok bool, err error) {
	snap.Seq = seq
	store, err := s.js.ObjectStore(ctx, s.bucket(seq))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return snap, false, nil
	} else if err != nil {
		return snap, false, err
	}
	info, err := store.GetInfo(ctx, objectName)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		snap.Fault = "it was never finished, or its stream is damaged"
		return snap, true, nil
	} else if err != nil && !errors.Is(err, jetstream.ErrBadObjectMeta) {
		return snap, false, err
	}
	if err == nil {
		snap.stream, snap.givenUp = info.Metadata[metaStream], info.Metadata[metaGivenUp] != ""
		err = errors.Join(json.Unmarshal([]byte(info.Metadata[metaSnapshot]), &snap.Snapshot), json.Unmarshal([]byte(info.Metadata[metaCursor]), &snap.cursor))
	}
	if err != nil || snap.Seq != seq {
		snap.Snapshot = schema.Snapshot{Seq: seq, Fault: "its metadata is not that of a snapshot of lapse"}
		return snap, true, nil
	}
	snap.Bytes = info.Size
	if snap.Sound && s.log != nil {
		why := "it is of another"
		if s.log.Continues(snap.stream) {
			if why, err = Mismatch(ctx, s.log, snap.cursor); errors.Is(err, eventlog.ErrGap) {
				why, err = err.Error(), nil
			}
		}
		if err != nil {
			return snap, false, err
		}
		if why != "" {
			snap.lost, snap.Sound, snap.Fault = true, false, "it does not match the log: "+why
		}
	}
	return snap, true, nil
}

// giveUp marks the snapshots of lost events as given up, so that later starts do not
// reject the log because of them.
func (s *Store) giveUp(ctx context.Context, all []storedSnapshot) error {
	for _, snap := range all {
		if !snap.lost || snap.givenUp || snap.stream != s.log.Identity() {
			continue
		}
		store, err := s.js.ObjectStore(ctx, s.bucket(snap.Seq))
		if err == nil {
			snap.givenUp, snap.Sound, snap.Fault = true, true, "" // as it was
			err = snap.updateMeta(ctx, store)
		}
		if err != nil {
			return fmt.Errorf("snapshot %d: %w", snap.Seq, err)
		}
	}
	return nil
}

// ErrBusy means that Making is held.
var ErrBusy = errors.New("a snapshot is being made or verified: try again when that is done")

// updateMeta writes the object's metadata.
func (snap *storedSnapshot) updateMeta(ctx context.Context, store jetstream.ObjectStore) error {
	meta, err := snap.meta()
	if err != nil {
		return err
	}
	return store.UpdateMeta(ctx, objectName, meta)
}

func (snap *storedSnapshot) meta() (jetstream.ObjectMeta, error) {
	snapshot, err := json.Marshal(snap.Snapshot)
	if err != nil {
		return jetstream.ObjectMeta{}, err
	}
	cursor, err := json.Marshal(snap.cursor)
	meta := jetstream.ObjectMeta{Name: objectName, Metadata: map[string]string{
		metaStream: snap.stream, metaSnapshot: string(snapshot), metaCursor: string(cursor)}}
	if snap.givenUp {
		meta.Metadata[metaGivenUp] = "lost"
	}
	return meta, err
}

// ErrNoSnapshot means that this log has no snapshot at a sequence.
var ErrNoSnapshot = errors.New("there is no such snapshot of this log: list them to see which there are")

// remove deletes the snapshot at seq, finished or not, if there is one.
func (s *Store) remove(ctx context.Context, seq uint64) error {
	err := s.js.DeleteObjectStore(ctx, s.bucket(seq))
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("remove snapshot %d: %w", seq, err)
	}
	return nil
}
