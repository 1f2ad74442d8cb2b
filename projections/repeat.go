package projections

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// A client that got no reply repeats its mutation with the same Nats-Msg-Id, and must get
// the outcome of the first. So each successful mutation leaves two keys in the fold of its
// event:
//
//	I order-7                    ─► sequence, time, "document.create.orders.SO05"
//	J 000000006921a6c3 order-7
//
// I answers a repeat, J finds what to forget. An id that is used again after the window
// overwrites I and not the old J. So whoever reads J checks that I has the same second.

// RepeatWindow is how long, in ms of log time, the Nats-Msg-Id of a successful
// mutation is remembered.
const RepeatWindow = 2 * 60 * 1000

// remember stores the Nats-Msg-Id of a mutation with its event.
func (f *fold) remember(e *schema.Event) error {
	f.value = binary.BigEndian.AppendUint64(f.value[:0], e.Seq)
	f.value = binary.BigEndian.AppendUint64(f.value, uint64(e.Time))
	f.value = e.AppendMutation(f.value)
	f.key = messageKey(f.key[:0], e.MsgID)
	if err := f.batch.Set(f.key, f.value, nil); err != nil {
		return err
	}
	f.key = messageTimeKey(f.key[:0], e.Time/1000, e.MsgID)
	return f.batch.Set(f.key, nil, nil)
}

// dropMessageIDs drops at most the given number of message ids that are past their window at
// the cursor, before the fold's events. The caller passes more than the fold adds. Thus
// ids never pile up, though a fold drops only a bounded number. It starts at the second
// where the last call stopped: an iterator from the beginning would pass all tombstones.
func (f *fold) dropMessageIDs(most int) error {
	last := (f.cursor.Time - RepeatWindow) / 1000
	if last <= f.store.forgotten {
		return nil
	}
	it, err := f.store.iterate(messageTimeKey(nil, f.store.forgotten, ""), messageTimeKey(nil, last, ""))
	if err != nil {
		return err
	}
	ok := it.First()
	for ; ok && most > 0; ok, most = it.Next(), most-1 {
		second, id := int64(binary.BigEndian.Uint64(it.Key()[1:])), string(it.Key()[1+8:])
		f.store.forgotten = second
		// The id may have been used again since.
		m, known, err := f.store.message(id)
		if err == nil && known && m.logTime/1000 == second {
			err = f.batch.Delete(messageKey(nil, id), nil)
		}
		if err == nil {
			err = f.batch.Delete(it.Key(), nil)
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
	}
	if !ok {
		f.store.forgotten = last
	}
	return errors.Join(it.Error(), it.Close())
}

// Repeat is the earlier use of a Nats-Msg-Id.
type Repeat struct {
	Seq uint64 // of the event
	// Mutation is the tail of the mutation's subject, "" if an older version of lapse
	// folded the event without it.
	Mutation string
	logTime  int64 // log time of the event, ms
}

// message returns the use of a Nats-Msg-Id. message ignores the window: the caller
// compares.
func (s *Store) message(id string) (m Repeat, known bool, err error) {
	value, closer, err := s.db.Get(messageKey(nil, id))
	if errors.Is(err, pebble.ErrNotFound) {
		return m, false, nil
	} else if err != nil {
		return m, false, err
	}
	m = Repeat{binary.BigEndian.Uint64(value), string(value[16:]), int64(binary.BigEndian.Uint64(value[8:]))}
	return m, true, closer.Close()
}

// Repeated returns the mutation with this Nats-Msg-Id that succeeded within the
// window before now (log time, ms), if any.
func (s *Store) Repeated(id string, now int64) (m Repeat, ok bool, err error) {
	m, known, err := s.message(id)
	return m, known && now-m.logTime < RepeatWindow, err
}
