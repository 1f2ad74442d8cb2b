package audit

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/schema"
)

// life is the state of a document id.
type life struct {
	phase   phase
	version uint64     // the live one, or the last one that lived
	ts      int64      // its _ts, in seconds
	ttl     schema.TTL // its own
	content uint64     // hash of its body
	illegal uint64     // hash of an illegal ttl, accepted while TTL was off; 0 for none
	held    bool
	freed   int64  // log time, ms, of its last release
	ended   uint64 // sequence of the event that ended it; 0 while it lives
	warned  string // deadlines that the version was warned of, 8 bytes each
}

// The phases and what changes them:
//
//	unseen ─► alive ─► deleted │ expired
//	            ▲ └──► lost ─► expired (too late)
//	            └── created again, from any phase
type phase uint8

const (
	unseen  phase = iota
	alive         // exists, or is due and not yet found missing
	lost          // due without a DocumentExpired, and reported as missing
	deleted       // by DocumentDeleted
	expired       // by DocumentExpired
)

// heldPhase is the bit that marks a held document in its encoded phase.
const heldPhase = 0x80

// order is one of the two indexes by which live documents come due. A document is in one
// of them, or in none. Both are kept whatever the policy, which may change.
type order uint8

const (
	byDeadline  order = 1 // documents with a ttl of their own
	byTimestamp order = 2 // documents that inherit
)

// place returns the position of a document in the orders; none if it does not expire or
// has ended.
func (l *life) place() (in order, second int64) {
	switch {
	case l.phase != alive || l.ttl == schema.Never || l.held:
		return 0, 0
	case l.ttl > 0:
		return byDeadline, l.ts + int64(l.ttl)
	}
	return byTimestamp, l.ts
}

// state holds the states of documents. It caches recent ones in two generations and
// writes in batches, so that frequently changed documents cost few reads and writes.
// Whoever changes a life need not report it: life hands it out as touched, and flush
// compares it with what is stored. Until then it is in one of the generations, so that
// each id has one life in memory.
type state struct {
	db           *pebble.DB
	failed       chan error       // receives one failure of Pebble's background work
	young, old   map[string]*held // by incarnation and id
	touched      []*held          // returned for change since the last flush
	touchedBytes int              // size of their keys
	generation   int              // maximum number of documents in a generation
	key, value   []byte           // scratch
}

// held is a life in memory, as it is now and as it is in Pebble.
type held struct {
	key         string
	touched     bool
	now, stored life
}

// The number of cached documents, a few hundred bytes each, and the size of a batch of
// keys in bytes.
const (
	generationLives = 1 << 15
	writtenBytes    = 4 << 20
)

// openState opens the store of an audit, which is empty.
func openState(dir string, fs vfs.FS) (*state, error) {
	cache := pebble.NewCache(128 << 20) // includes the memtables
	defer cache.Unref()
	s := &state{young: make(map[string]*held), generation: generationLives, failed: make(chan error, 1)}
	options := &pebble.Options{
		EventListener:               &pebble.EventListener{BackgroundError: s.fail, DataCorruption: func(info pebble.DataCorruptionInfo) { s.fail(info.Details) }},
		FS:                          fs,
		Cache:                       cache,
		DisableWAL:                  true, // a crash ends the audit, so its state need not survive
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                16 << 20,
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		Logger:                      quiet{},
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		options.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
		options.Levels[i].IndexBlockSize = 1 << 20 // one index block per file, so a lookup reads one
	}
	var err error
	s.db, err = pebble.Open(dir, options)
	return s, err
}

// fail is called by Pebble in the background. A call in flight may wait for ever then, so
// a channel reports the failure.
func (s *state) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

func (s *state) close() error { return s.db.Close() }

// quiet discards Pebble's log: failures are returned as errors, too.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic("audit: its temporary files fail")
}

// life returns the state of a document, which the caller may change until the next call.
func (s *state) life(incarnation uint64, id schema.DocumentID) (*life, error) {
	if len(s.young) >= s.generation || s.touchedBytes > writtenBytes {
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
	if len(s.young) >= s.generation {
		s.old, s.young = s.young, make(map[string]*held, s.generation)
	}
	s.key = append(binary.BigEndian.AppendUint64(append(s.key[:0], 0), incarnation), id...)
	h, ok := s.young[string(s.key[1:])]
	if !ok {
		if h, ok = s.old[string(s.key[1:])]; !ok {
			var err error
			if h, err = s.read(s.key); err != nil {
				return nil, err
			}
		}
		s.young[h.key] = h
	}
	if !h.touched {
		h.touched = true
		s.touched = append(s.touched, h)
		s.touchedBytes += len(h.key)
	}
	return &h.now, nil
}

// read reads a life from Pebble, a new one if there is none.
func (s *state) read(key []byte) (*held, error) {
	h := &held{key: string(key[1:])}
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return h, nil
	}
	if err != nil {
		return nil, err
	}
	h.stored = decodeLife(value)
	h.now = h.stored
	return h, closer.Close()
}

// flush writes the changed states. A life that is as stored costs nothing: most reads
// change nothing.
func (s *state) flush() error {
	batch := s.db.NewBatch()
	defer batch.Close()
	for _, h := range s.touched {
		h.touched = false
		if h.now == h.stored {
			continue
		}
		s.key = append(append(s.key[:0], 0), h.key...)
		s.value = h.now.append(s.value[:0])
		if err := batch.Set(s.key, s.value, nil); err != nil {
			return err
		}
		had, at := h.stored.place()
		has, to := h.now.place()
		h.stored = h.now
		if had == has && at == to {
			continue
		}
		incarnation, id := h.key[:8], h.key[8:]
		if had != 0 {
			if err := batch.Delete(s.orderKey(incarnation, had, at, id), nil); err != nil {
				return err
			}
		}
		if has != 0 {
			if err := batch.Set(s.orderKey(incarnation, has, to, id), nil, nil); err != nil {
				return err
			}
		}
	}
	clear(s.touched)
	s.touched, s.touchedBytes = s.touched[:0], 0
	return s.db.Apply(batch, pebble.NoSync)
}

// drop deletes the documents of an incarnation.
func (s *state) drop(incarnation uint64) error {
	if err := s.flush(); err != nil {
		return err
	}
	for kind := byte(0); kind <= byte(byTimestamp); kind++ {
		from := binary.BigEndian.AppendUint64([]byte{kind}, incarnation)
		to := binary.BigEndian.AppendUint64([]byte{kind}, incarnation+1)
		if err := s.db.DeleteRange(from, to, pebble.NoSync); err != nil {
			return err
		}
	}
	return nil
}

// due visits the documents of an order from second from through second through, ordered
// by second. visit may change them. The iterator sees the state at its beginning, so a
// change does not disturb it.
func (s *state) due(incarnation uint64, in order, from, through int64, visit func(schema.DocumentID) error) (err error) {
	if through < from {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	head := string(binary.BigEndian.AppendUint64(nil, incarnation))
	bounds := &pebble.IterOptions{LowerBound: append([]byte(nil), s.orderKey(head, in, from, "")...)}
	if through == math.MaxInt64 {
		bounds.UpperBound = binary.BigEndian.AppendUint64([]byte{byte(in)}, incarnation+1)
	} else {
		bounds.UpperBound = append([]byte(nil), s.orderKey(head, in, through+1, "")...)
	}
	it, err := s.db.NewIter(bounds)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if err := visit(schema.DocumentID(it.Key()[17:])); err != nil {
			return err
		}
	}
	return it.Error()
}

// orderKey returns the key of an entry in an order, valid until the next call.
func (s *state) orderKey(incarnation string, in order, second int64, id string) []byte {
	s.key = append(append(s.key[:0], byte(in)), incarnation...)
	s.key = binary.BigEndian.AppendUint64(s.key, uint64(second)^1<<63)
	s.key = append(s.key, id...)
	return s.key
}

// append appends the value of a key 0: the phase with the hold's bit, numbers, hash,
// warnings.
func (l *life) append(dst []byte) []byte {
	dst = append(dst, byte(l.phase))
	if l.held {
		dst[len(dst)-1] |= heldPhase
	}
	dst = binary.AppendVarint(dst, l.freed)
	dst = binary.AppendUvarint(dst, l.version)
	dst = binary.AppendVarint(dst, l.ts)
	dst = binary.AppendVarint(dst, int64(l.ttl))
	dst = binary.AppendUvarint(dst, l.ended)
	dst = binary.AppendUvarint(dst, l.illegal)
	dst = binary.BigEndian.AppendUint64(dst, l.content)
	return append(dst, l.warned...)
}

// decodeLife decodes the output of append, which is always valid.
func decodeLife(value []byte) (l life) {
	l.phase, l.held, value = phase(value[0]&^heldPhase), value[0]&heldPhase != 0, value[1:]
	unsigned := func() uint64 {
		n, size := binary.Uvarint(value)
		value = value[size:]
		return n
	}
	signed := func() int64 {
		n, size := binary.Varint(value)
		value = value[size:]
		return n
	}
	l.freed = signed()
	l.version, l.ts, l.ttl, l.ended, l.illegal = unsigned(), signed(), schema.TTL(signed()), unsigned(), unsigned()
	l.content, l.warned = binary.BigEndian.Uint64(value), string(value[8:])
	return l
}
