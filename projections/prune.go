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

// What a log trims and what a client deletes must leave the files, too, in bounded time.
// Three steps of retention (snapshot/retention.go calls them):
//
//   - Forget deletes message ids past their window, Prune history that the log has lost.
//     Both write tombstones.
//   - Compact rewrites tables until no deleted or replaced value is in them.
//   - renewManifest drops the manifest, which names first and last keys of tables.
//
// None of them changes what a read returns about documents that exist.

// pruneAtOnce is about the bytes of deletions in one batch.
const pruneAtOnce = 1 << 20

// Forget drops the message ids that are past their window at now (log time, ms), and
// reports whether there were any. Fold does so only when there are facts.
func (s *Store) Forget(now int64) (forgotten bool, err error) {
	s.folding.Lock()
	defer s.folding.Unlock()
	f := &fold{store: s, batch: s.db.NewBatch(), cursor: Cursor{Time: now}}
	defer func() { err = errors.Join(err, f.batch.Close()) }()
	if err := f.dropMessageIDs(math.MaxInt); err != nil || f.batch.Empty() {
		return false, err
	}
	return true, f.batch.Commit(pebble.NoSync)
}

// Prune drops the history of events before sequence first, which the log no longer
// has, and reports whether there was any. Fold and reads go on meanwhile. It ends
// with ctx. Deleted collections go first: their documents were kept for history alone.
// Each is one range deletion, however many documents it had.
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

// compactFiles is the number of lowest files in one step of Compact: compactions that
// flushes need wait for no more than a step.
const compactFiles = 4

// Compact rewrites the files until they hold nothing that was deleted or replaced
// before the call, and the manifest unless there are very many files. It may take
// long and returns ctx's error if ctx ends first. The steps are by the files of the last
// level, where nearly all bytes are.
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

// maxManifestEdits bounds the edits of renewManifest.
const maxManifestEdits = 500

// renewManifest makes Pebble rotate the manifest twice, since it keeps the previous
// one. Pebble rotates after as many edits as there are files, so renewManifest makes
// edits that change nothing.
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

// manifests returns the names of all manifests. The mark is in the projection's directory,
// as the manifests are.
func (s *Store) manifests() ([]string, error) {
	names, err := s.damage.fs.List(s.damage.fs.PathDir(s.damage.mark))
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "MANIFEST-") }), err
}

// RepeatsFrom returns the sequence of the first event whose Nats-Msg-Id is still
// remembered at now (log time, ms): a repeat may read it from the log.
func (s *Store) RepeatsFrom(now int64) (seq uint64, ok bool, err error) {
	it, err := s.iterate(messageTimeKey(nil, max(now-RepeatWindow, 0)/1000, ""), successor([]byte{keyMessageTime}))
	if err != nil {
		return 0, false, err
	}
	// Within a second, entries are in order of id, not of sequence. So all of the first
	// second's ids are compared, and the loop ends at the next second.
	for valid, last := it.First(), int64(-1); valid && err == nil; valid = it.Next() {
		second, id := int64(binary.BigEndian.Uint64(it.Key()[1:])), string(it.Key()[1+8:])
		if ok && second != last {
			break
		}
		m, known, readErr := s.message(id)
		// The id may have been used again since.
		if err = readErr; err == nil && known && m.logTime/1000 == second && now-m.logTime < RepeatWindow && (!ok || m.Seq < seq) {
			seq, ok, last = m.Seq, true, second
		}
	}
	return seq, ok, errors.Join(err, it.Error(), it.Close())
}
