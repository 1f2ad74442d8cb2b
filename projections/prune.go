package projections

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// pruneAtOnce is about how many bytes of deletions are written at a time.
const pruneAtOnce = 1 << 20

// Forget drops the message ids that are past their window at now (log time,
// ms), which folding does only when there is something to fold, and tells
// whether there were any.
func (s *Store) Forget(now int64) (forgotten bool, err error) {
	s.folding.Lock()
	defer s.folding.Unlock()
	f := &fold{store: s, batch: s.db.NewBatch(), cursor: Cursor{Time: now}}
	defer func() { err = errors.Join(err, f.batch.Close()) }()
	if err := f.forget(math.MaxInt); err != nil || f.batch.Empty() {
		return false, err
	}
	return true, f.batch.Commit(pebble.NoSync)
}

// Prune drops what is kept only for the history of events before sequence
// first, which the log has no more, and tells whether there was any. Folding
// and reading go on meanwhile. It ends with ctx.
func (s *Store) Prune(ctx context.Context, first uint64) (pruned bool, err error) {
	batch := s.db.NewBatch()
	defer func() { err = errors.Join(err, batch.Close()) }()
	write := func(least int) error {
		if batch.Len() < least || batch.Empty() {
			return nil
		}
		pruned = true
		if err := batch.Commit(pebble.NoSync); err != nil {
			return err
		}
		batch.Reset()
		return nil
	}
	if err := s.scan([]byte{keyBuried}, func(key, value []byte) error {
		if binary.BigEndian.Uint64(value) >= first {
			return nil
		}
		documents := documentKey(nil, binary.BigEndian.Uint64(key[len(key)-8:]), "")
		return errors.Join(batch.DeleteRange(documents, successor(documents), nil), batch.Delete(key, nil))
	}); err != nil {
		return pruned, err
	}
	if err := s.scan([]byte{keyHistory}, func(key, _ []byte) error {
		if binary.BigEndian.Uint64(key[len(key)-8:]) >= first {
			return ctx.Err()
		}
		return errors.Join(batch.Delete(key, nil), write(pruneAtOnce), ctx.Err())
	}); err != nil {
		return pruned, err
	}
	return pruned, write(0)
}

// compactFiles is how many of the lowest files one step of Compact covers:
// flushes need compactions, too, and wait for no more than that.
const compactFiles = 4

// Compact rewrites the files until they hold nothing that was deleted or
// replaced before, the manifest included where there are not very many. It may
// take long; the error is ctx's when it ends first.
func (s *Store) Compact(ctx context.Context) error {
	levels, err := s.db.SSTables()
	if err != nil {
		return err
	}
	bounds := [][]byte{{0}}
	for i, table := range levels[len(levels)-1] {
		if i%compactFiles == compactFiles-1 {
			bounds = append(bounds, table.Largest.UserKey)
		}
	}
	bounds = append(bounds, []byte{0xff})
	for i := range len(bounds) - 1 {
		if err := s.db.Compact(ctx, bounds[i], bounds[i+1], false); err != nil {
			return err
		}
	}
	return s.renewManifest(ctx)
}

// maxManifestEdits bounds what renewManifest does at a time.
const maxManifestEdits = 500

// renewManifest has Pebble begin the manifest anew, and once more, since it
// keeps the one before. It does so after as many edits as there are files, so
// this makes some that change nothing.
func (s *Store) renewManifest(ctx context.Context) error {
	before, err := s.manifests()
	if err != nil {
		return err
	}
	for range maxManifestEdits {
		now, err := s.manifests()
		if err != nil || !slices.ContainsFunc(now, func(name string) bool { return slices.Contains(before, name) }) {
			return err
		}
		if err := errors.Join(s.db.Set([]byte{keyNothing}, nil, pebble.NoSync), s.db.Flush(), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// DiskUsage returns how many bytes the files have.
func (s *Store) DiskUsage() uint64 { return s.db.Metrics().DiskSpaceUsage() }

// manifests returns the names of the manifests that there are.
func (s *Store) manifests() ([]string, error) {
	names, err := s.damage.fs.List(s.damage.fs.PathDir(s.damage.mark))
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "MANIFEST-") }), err
}

// RepeatsFrom returns the sequence of the first event whose Nats-Msg-Id is
// still remembered at now (log time, ms): a repeat may ask the log for it.
func (s *Store) RepeatsFrom(now int64) (seq uint64, ok bool, err error) {
	it, err := s.iterate(messageTimeKey(nil, max(now-RepeatWindow, 0)/1000, ""), successor([]byte{keyMessageTime}))
	if err != nil {
		return 0, false, err
	}
	// The first of a second is not the first by its id.
	for valid, last := it.First(), int64(-1); valid && err == nil; valid = it.Next() {
		second, id := int64(binary.BigEndian.Uint64(it.Key()[1:])), string(it.Key()[1+8:])
		if ok && second != last {
			break
		}
		m, known, readErr := s.message(id)
		// The id may have been used again since.
		if err = readErr; err == nil && known && m.at/1000 == second && now-m.at < RepeatWindow && (!ok || m.Seq < seq) {
			seq, ok, last = m.Seq, true, second
		}
	}
	return seq, ok, errors.Join(err, it.Error(), it.Close())
}
