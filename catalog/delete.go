package catalog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/logread"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/schema"
)

// ErrNone means that there is nothing of a database.
var ErrNone = errors.New("there is no such database: `lapse database list` shows which there are")

// Delete deletes the streams of a database, which nobody serves, with their consumers, and
// returns their names. If it is interrupted, lapse refuses what remains, and another Delete
// deletes that. The mark on the log comes first, the log itself last: whatever remains of
// a deletion that dies is recognized and refused.
func Delete(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName) ([]string, error) {
	streams, err := Streams(ctx, js, db)
	if err != nil {
		return nil, err
	}
	if len(streams) == 0 {
		return nil, fmt.Errorf("database %s: %w", db, ErrNone)
	}
	if err := CheckDelete(ctx, js, db); err != nil {
		return nil, err
	}
	log, err := OpenLog(ctx, js, db)
	if err == nil {
		_, err = js.UpdateStream(ctx, eventlog.Deleted(log.CachedInfo().Config))
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	return streams, Remove(ctx, js, streams)
}

// Streams returns the names of the streams of a database, the log last: without it lapse
// would begin a new one.
func Streams(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName) (names []string, err error) {
	all := js.StreamNames(ctx)
	for name := range all.Name() {
		if db.Owns(name) {
			names = append(names, name)
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, explain("streams", err)
	}
	SortStreams(names, db)
	return names, nil
}

// SortStreams sorts streams of a database by name, with the log last.
func SortStreams(names []string, db schema.DatabaseName) {
	slices.Sort(names)
	if i := slices.Index(names, db.LogStream()); i >= 0 {
		copy(names[i:], names[i+1:])
		names[len(names)-1] = db.LogStream()
	}
}

// Remove deletes streams, in this order. A stream that is gone already is no error:
// another Delete may have gone this far.
func Remove(ctx context.Context, js jetstream.JetStream, names []string) error {
	for _, name := range names {
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove stream %s: %w", name, err)
		}
	}
	return nil
}

// CheckDelete returns an error if a database may not be deleted: it is served, has held
// documents, or its restore was interrupted, when nobody knows which are held. A hold
// promises that the document stays, which a deletion would break.
func CheckDelete(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName) error {
	if err := CheckVacant(ctx, js, db); err != nil {
		return err
	}
	var now *jetstream.StreamInfo
	switch log, err := OpenLog(ctx, js, db); {
	case err == nil:
		now = log.CachedInfo()
		if eventlog.Deleting(now.Config) {
			return nil
		}
		if err := eventlog.Interrupted(now.Config); err != nil {
			return err
		}
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return err
	}
	held, err := heldDocuments(ctx, js, db, now)
	if err != nil {
		return fmt.Errorf("database %s: cannot find out which documents are held: %w", db, err)
	}
	for example := range held {
		return fmt.Errorf("database %s has held documents (%d, such as %s): start lapse, list them with `lapse query COLL --held`, release each with `lapse document release`, and delete it then", db, len(held), example)
	}
	return nil
}

// heldDocuments returns the held documents of a database, each as COLL/ID: those of the
// snapshot that a trimmed log needs, and what the log says since. log is nil if there is
// none. Without a log only the snapshot can tell.
func heldDocuments(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName, log *jetstream.StreamInfo) (map[string]bool, error) {
	held := make(map[string]bool)
	after := uint64(0)
	if log == nil || log.State.FirstSeq > 1 {
		dir, err := os.MkdirTemp("", "lapse-delete-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		ofLog := func(identity string) bool {
			return log == nil || identity == "" || slices.Contains(eventlog.Identities(log.Config), identity)
		}
		after, err = snapshot.EachHeld(ctx, js, db, ofLog, filepath.Join(dir, "projection"), func(c schema.CollectionName, id schema.DocumentID) {
			held[string(c)+"/"+id.Token()] = true
		})
		if err != nil {
			return nil, err
		}
		if log != nil && after+1 < log.State.FirstSeq {
			return nil, fmt.Errorf("the log begins at %d, and there is no sound snapshot of the events before", log.State.FirstSeq)
		}
	}
	if log == nil {
		return held, nil
	}
	return held, readHolds(ctx, js, db, after+1, held)
}

const (
	holdMessages = 1024 // that are requested and not read yet
	holdBytes    = 1 << 20
	consumerTTL  = time.Minute
)

// readHolds changes held by the events from a sequence on. It needs only the events of two
// types, and the last one of a document counts: JetStream filters, and the rest of the log
// is not read.
func readHolds(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName, from uint64, held map[string]bool) error {
	hold, release := schema.DocumentHeld.String(), schema.DocumentReleased.String()
	consumer, err := logread.Open(ctx, logread.Stream{JS: js, Name: db.LogStream()}, logread.Options{
		Config: jetstream.ConsumerConfig{Name: "lapse_delete_" + rand.Text(), OptStartSeq: from, InactiveThreshold: consumerTTL,
			FilterSubjects: []string{db.Events() + "*." + hold, db.Events() + "*." + release}},
		Messages: holdMessages, Bytes: holdBytes, Heartbeat: logread.Heartbeat,
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	for pending := consumer.CachedInfo().NumPending; pending > 0; {
		_, m, err := consumer.Next(ctx)
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		pending = meta.NumPending
		collection, kind, _ := schema.SplitEventSubject(m.Subject)
		if document := collection + "/" + m.Header.Get(schema.HeaderID); kind == hold {
			held[document] = true
		} else {
			delete(held, document)
		}
	}
	return nil
}
