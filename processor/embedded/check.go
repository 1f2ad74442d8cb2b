package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lapsedb/lapse/processor/embedded/blocks"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
)

// What a start checks before NATS opens the streams. NATS repairs what it opens: it cuts a
// file off at the first record that it cannot read. After a kill or a power cut that is
// right, since what is lost was not acknowledged. After a flipped bit it would throw away
// acknowledged events, and the log would look sound. So lapse reads the files first
// (package blocks), and decides:
//
//	damage in the middle                        the start fails; nothing was changed
//	damage at the end, or a lost end            likewise, unless --accept-lost-end
//	a lost end without SyncAlways               accepted: a power cut may take it
//	a torn last record                          sound: NATS completes the repair
//
// A lost end that is accepted is noted in the files as a gap (Stream.Skip), so that the
// sequences of lost events are never given to others: a consumer would take those for
// events that it has seen.
//
// With several databases, a damaged one must not keep the others from starting: its streams
// go into quarantine.

// account is the account of accounts.conf.tmpl that has the streams.
const account = "LAPSE"

// checkFiles checks the files of all logs and mutations streams before the server opens
// them: it would truncate them at damage. An error is one line; nothing was changed then.
// With several databases, a damaged stream goes into quarantine and the server does not open
// it.
func (o *Options) checkFiles(quarantine *quarantine, known *blocks.Known) error {
	streams, err := o.streams()
	if err != nil || len(streams) == 0 {
		return err
	}
	skips := make(map[*blocks.Stream]uint64)
	for _, dir := range slices.Sorted(maps.Keys(streams)) {
		name := filepath.Base(dir)
		db, isMutations, _ := schema.ParseStream(name)
		stream, err := blocks.Check(dir, streams[dir], known)
		last, err := o.judge(stream, err, !isMutations, db)
		if err != nil && len(o.Databases) > 1 {
			if !slices.Contains(o.Databases, db) {
				o.Logger.Warn("a damaged stream of another database is not opened", "stream", name, "err", err)
			}
			if err := quarantine.put(name, db, err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if last > stream.Last {
			skips[stream] = last
		}
	}
	for stream, last := range skips {
		o.Logger.Warn("a stream has lost its end; its sequences are not used again", "stream", stream.Name, "last", stream.Last, "lost", last-stream.Last)
		if err := stream.Skip(last); err != nil {
			return fmt.Errorf("cannot write to %s: %w", stream.Name, err)
		}
	}
	if err := known.Save(); err != nil {
		o.Logger.Warn("the next start reads all files of the log again", "err", err)
	}
	return nil
}

// streams returns the directories of all logs and mutations streams, each with the
// subject prefix of a log's events.
func (o *Options) streams() (events map[string]string, err error) {
	dir := streamsDir(o.StoreDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read %s: %w", dir, err)
	}
	events = make(map[string]string)
	for _, e := range entries {
		if db, isMutations, ok := schema.ParseStream(e.Name()); ok && isMutations {
			events[filepath.Join(dir, e.Name())] = ""
		} else if ok {
			events[filepath.Join(dir, e.Name())] = db.Events()
		}
	}
	return events, nil
}

// updateInterval is how often the server searches for files that have become full.
const updateInterval = 30 * time.Second

// keepChecked checks files that have become full, in the background, until ctx ends: so a
// start after months reads no more than one after a minute. An error is a warning, since
// the next start reads what is missing.
func (o *Options) keepChecked(ctx context.Context, known *blocks.Known) {
	next := time.NewTicker(updateInterval)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
		streams, err := o.streams()
		if err == nil {
			err = known.Update(ctx, streams)
		}
		if err != nil && ctx.Err() == nil {
			o.Logger.Warn("the next start reads more files of the log", "err", err)
		}
	}
}

// judge returns the last sequence that a stream is known to have reached, or an error if
// lapse may not continue with the stream as found. err is that of blocks.Check. How far the
// log went is known from three sources: its index file, the damage itself, and the extent
// that lapse keeps of its last acknowledgement (Options.Known). The furthest counts.
//
// Each error names two ways out: restore a copy, or go on with a loss.
func (o *Options) judge(stream *blocks.Stream, err error, isLog bool, db schema.DatabaseName) (last uint64, _ error) {
	const (
		unchanged = "nothing was changed; restore the store directory from a copy"
		newLog    = "start a new log from the newest snapshot with `lapse snapshot restore --new-log`"
	)
	reached := eventlog.Extent{Seq: stream.Indexed, By: "its index"}
	switch damage, ok := errors.AsType[*blocks.Damage](err); {
	case ok && damage.End && o.AcceptLostEnd:
		reached = reached.Further(eventlog.Extent{Seq: damage.Last, By: "its files"})
	case ok && damage.End:
		return 0, fmt.Errorf("%w: %s, or restart with --accept-lost-end to continue without the messages after %d", err, unchanged, damage.After)
	case ok && !isLog:
		return 0, fmt.Errorf("%w: %s, or remove the directory of stream %s, and with it the mutations that were not judged yet", err, unchanged, stream.Name)
	case ok:
		return 0, fmt.Errorf("%w: %s, or %s", err, unchanged, newLog)
	case err != nil:
		return 0, fmt.Errorf("cannot check the files of stream: %w", err)
	}
	if isLog && slices.Contains(o.Databases, db) && o.Known != nil {
		reached = reached.Further(o.Known(db, strings.TrimSuffix(stream.Subject, ">")))
	}
	switch err := reached.CheckEnd(stream.Name, stream.Last); {
	case err == nil:
		return stream.Last, nil
	case stream.Last == 0 && o.SyncAlways:
		return 0, fmt.Errorf("%s: stream %s is empty but had reached %d by %s: %s, or %s", stream.File, stream.Name, reached.Seq, reached.By, unchanged, newLog)
	case stream.Last == 0:
		return 0, nil // the processor has to handle an empty stream
	case o.SyncAlways && !o.AcceptLostEnd:
		return 0, fmt.Errorf("%s: %w", stream.File, err)
	}
	return reached.Seq, nil
}
