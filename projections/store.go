package projections

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
)

// Options of a Store. The zero value is good.
type Options struct {
	// FS is the file system; the machine's if nil.
	FS vfs.FS
	// 512 MiB if 0. Pebble's own default of 8 MB costs half the speed at a million documents.
	CacheBytes int64 `flag:"cache up to [SIZE] of the projection in memory; auto is half of what lapse takes, 400MiB at most"`
	// Cache is the block cache, which several stores can share; one of CacheBytes for
	// this store alone if nil.
	Cache *pebble.Cache
	// DocumentBytes bounds the cache of recently changed documents; 24 MiB if 0.
	DocumentBytes int64
	// MemTableBytes is the most that is folded between two flushes, and that the start
	// after a crash folds again; 32 MiB if 0. With 8 MiB, storms take half as long again.
	MemTableBytes uint64
	// NoIndexes keeps no secondary indexes, whatever the indexing policies: for a
	// projection without queries.
	NoIndexes bool
	// ReadOnly changes no file. Nothing can be folded.
	ReadOnly bool
}

// EnsureDefaults returns o with its zero values filled in.
func (o Options) EnsureDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	o.CacheBytes = cmp.Or(o.CacheBytes, 512<<20)
	o.DocumentBytes = cmp.Or(o.DocumentBytes, 24<<20)
	o.MemTableBytes = cmp.Or(o.MemTableBytes, 32<<20)
	return o
}

// Store is the projection. One goroutine calls Fold, and one Index; any number read.
// Locks: folding before mu. A fold holds folding for its whole time, mu only to announce
// that it writes and to publish. Readers hold mu while they copy a few fields. So neither
// waits for a batch.
type Store struct {
	db        *pebble.DB
	damage    *damage
	disk      *disk
	cache     *documentCache
	noIndexes bool
	readOnly  bool
	work      chan struct{} // see IndexWork

	// folding is held by Fold and Index, which exclude each other; it guards the fields
	// up to indexer.
	folding sync.Mutex
	// forgotten is the second up to which message ids are forgotten: forget continues
	// there and skips tombstones.
	forgotten int64
	busy      map[uint64]bool // incarnations with work for Index
	served    uint64          // the last incarnation that had its turn
	indexer   indexer

	// mu guards the fields below. Only a fold or a slice of index work changes them, and
	// both may read them without mu.
	mu          sync.RWMutex
	writing     bool // a batch is being written: Pebble may be ahead of the fields below
	cursor      Cursor
	collections map[schema.CollectionName]*schema.Collection // replaced, never changed
	stats       map[uint64]stats
	indexes     map[uint64]*indexSet // by incarnation; replaced, never changed
	// settled is, by incarnation, the last change in the lazy indexes: the next mark is
	// after it, so a seek skips tombstones.
	settled map[uint64]uint64
	folded  chan struct{} // closed by the next fold; nil without waiters
}

// Files are large, so that a query over a whole collection reads few of them. A file's
// index is one block, which saves a block per lookup.
var fileSizes = [7]int64{16 << 20, 64 << 20, 64 << 20, 64 << 20, 64 << 20, 64 << 20, 64 << 20}

// A block holds about twenty documents. Larger blocks cost fewer cache misses per
// lookup, smaller ones fewer bytes where the block cache does not hold them.
const (
	blockBytes      = 8 << 10
	indexBlockBytes = 1 << 20
)

// compression is MinLZ, or Snappy where that is faster. A lookup beyond the block cache
// costs a fifth less than with Snappy, and files are a seventh smaller.
func compression() pebble.DBCompressionSettings { return pebble.DBCompressionFastest }

// The manifest names the first and last key of every file since its beginning, and so
// ids and values of erased documents. Beyond this size Pebble rotates it after as
// many edits as there are files.
const manifestBytes = 1

// Open opens or creates the projection in dir. After an error other than OfDisk it is
// unusable: remove dir and fold the log again.
func Open(dir string, o Options) (*Store, error) {
	o = o.EnsureDefaults()
	damage := &damage{fs: o.FS, mark: markOf(o.FS, dir), found: make(chan error, 1)}
	if _, err := o.FS.Stat(damage.mark); err == nil {
		return nil, fmt.Errorf("projection in %s: it was found damaged, or is not whole", dir)
	}
	cache := o.Cache
	if cache == nil {
		cache = pebble.NewCache(o.CacheBytes)
		defer cache.Unref()
	}
	disk := newDisk(o.FS, dir)
	options := &pebble.Options{
		FS:                          disk,
		Cache:                       cache,
		ReadOnly:                    o.ReadOnly,
		DisableWAL:                  true, // the event log is the write-ahead log
		FormatMajorVersion:          pebble.FormatNewest,
		Merger:                      merger,
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       8, // Pebble begins at half of it
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               8 * int64(o.MemTableBytes),
		TargetFileSizes:             fileSizes,
		MaxManifestFileSize:         manifestBytes,
		Logger:                      quiet{},
		EventListener:               &pebble.EventListener{DataCorruption: damage.report},
	}
	// When many documents expire, every memtable is full of tombstones. A compaction for
	// each would rewrite everything between its keys, and take half of the time.
	options.Experimental.TombstoneDenseCompactionThreshold = -1
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		options.Levels[i].BlockSize = blockBytes
		options.Levels[i].IndexBlockSize = indexBlockBytes
	}
	options.ApplyCompressionSettings(compression)
	db, err := disk.open(options)
	if err != nil {
		return nil, err
	}
	s := &Store{
		db: db, damage: damage, disk: disk, cache: newDocumentCache(o.DocumentBytes), noIndexes: o.NoIndexes, readOnly: o.ReadOnly, work: make(chan struct{}, 1),
		indexes: make(map[uint64]*indexSet), busy: make(map[uint64]bool),
		collections: make(map[schema.CollectionName]*schema.Collection), stats: make(map[uint64]stats), settled: make(map[uint64]uint64),
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// quiet drops Pebble's log lines; failures arrive as errors.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("projection: "+format, args...))
}

// load reads cursor, collections, counts and indexes into memory.
func (s *Store) load() error {
	s.cursor = Cursor{Format: formatVersion}
	value, closer, err := s.db.Get([]byte{keyCursor})
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	defer closer.Close()
	if s.cursor, err = decodeCursor(value); err != nil {
		return err
	}
	if err := s.scan([]byte{keyCollection}, func(key, value []byte) error {
		c, err := decodeCollection(schema.CollectionName(key[1:]), bytes.Clone(value))
		if err == nil {
			s.collections[c.Name] = c
		}
		return err
	}); err != nil {
		return err
	}
	if err := s.scan([]byte{keyStats}, func(key, value []byte) error {
		st, err := decodeStats(value)
		if err == nil {
			s.stats[binary.BigEndian.Uint64(key[1:])] = st
		}
		return err
	}); err != nil {
		return err
	}
	return s.loadIndexes()
}

// iterate returns an iterator over the keys in [lower, upper) as they are now.
func (s *Store) iterate(lower, upper []byte) (*pebble.Iterator, error) {
	return s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
}

// scan visits all keys with a prefix in order. key and value are valid only
// during the visit.
func (s *Store) scan(prefix []byte, visit func(key, value []byte) error) error {
	it, err := s.iterate(prefix, successor(prefix))
	if err != nil {
		return err
	}
	return visitAll(it, visit)
}

// visitAll visits all keys of an iterator, closes it, and returns its error or that of
// visit.
func visitAll(it *pebble.Iterator, visit func(key, value []byte) error) error {
	for ok := it.First(); ok; ok = it.Next() {
		if err := visit(it.Key(), it.Value()); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// Close flushes and closes the projection. No other call may be in progress.
func (s *Store) Close() error {
	if s.readOnly {
		return s.db.Close()
	}
	return s.disk.close(s.db)
}

// write commits a fold or slice; change then updates the store's memory. A reader
// that holds mu sees both or neither, or that writing is set. While writing is set, a
// reader may find the new state in Pebble and the old one in memory: View then reads
// everything from Pebble.
func (s *Store) write(commit func() error, change func()) error {
	s.mu.Lock()
	s.writing = true
	s.mu.Unlock()
	err := commit()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = false
	if err == nil {
		change()
	}
	return err
}

// Flush writes the folded state to disk, unless ctx ends first. After a crash, the start
// folds again what was only in memory.
func (s *Store) Flush(ctx context.Context) error {
	done, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Rebind continues the projection with another log, which must begin after the cursor.
// That is a stream which continues the old one's sequences, as after a restore. It is
// flushed at once, since a crash would bring the old identity back.
func (s *Store) Rebind(stream string) error {
	s.folding.Lock()
	defer s.folding.Unlock()
	cursor := s.Cursor()
	cursor.Stream = stream
	if err := s.db.Set([]byte{keyCursor}, cursor.encode(), pebble.NoSync); err != nil {
		return err
	}
	s.Identify(stream)
	return s.db.Flush()
}

// Identify binds an empty projection to a log. It is not written: the first fold does
// that.
func (s *Store) Identify(stream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor.Stream = stream
}
