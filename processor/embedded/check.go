package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/processor/embedded/blocks"
	"github.com/lapsedb/lapse/schema"
)

// account is the one of accounts.conf.tmpl in which the streams live.
const account = "LAPSE"

// Extent is how far a log went, by something that is not the log.
type Extent struct {
	Seq    uint64 // the last event
	Judged uint64 // the last mutation that was judged by then
	By     string // says what tells so
}

// checkFiles looks at the files of all logs and mutations streams, before the
// server may open them: it would cut them off where they are damaged. An error is
// one line, and nothing was changed then. With several databases, what is wrong with a
// stream is in aside, and the server does not open the stream.
func (o *Options) checkFiles(aside *aside) error {
	streams := streamsDir(o.StoreDir)
	entries, err := os.ReadDir(streams)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot read %s: %w", streams, err)
	}
	known := blocks.OpenKnown(filepath.Join(o.StoreDir, "checked"))
	skips := make(map[*blocks.Stream]uint64)
	for _, e := range entries {
		db, isMutations, ok := schema.ParseStream(e.Name())
		if !ok {
			continue
		}
		events := db.Events()
		if isMutations {
			events = ""
		}
		stream, err := blocks.Check(filepath.Join(streams, e.Name()), events, known)
		last, err := o.judge(stream, err, !isMutations, db)
		if err != nil && len(o.Databases) > 1 {
			if !slices.Contains(o.Databases, db) {
				o.Logger.Warn("a damaged stream of another database is not opened", "stream", e.Name(), "err", err)
			}
			if err := aside.put(e.Name(), db, err); err != nil {
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

// judge reports whether lapse may go on with a stream as it was found, and the last
// sequence that it is known to have had.
func (o *Options) judge(stream *blocks.Stream, err error, isLog bool, db schema.DatabaseName) (last uint64, _ error) {
	const restore = "restore the store directory from a copy"
	var damage *blocks.Damage
	switch {
	case errors.As(err, &damage) && damage.End && o.AcceptLostEnd:
		last = damage.Last
	case errors.As(err, &damage) && damage.End:
		return 0, fmt.Errorf("%w: nothing was changed; %s, or go on without what is behind message %d with --accept-lost-end", err, restore, damage.After)
	case errors.As(err, &damage) && !isLog:
		return 0, fmt.Errorf("%w: nothing was changed; %s, or remove the directory of stream %s, and with it the mutations that were not judged yet", err, restore, stream.Name)
	case errors.As(err, &damage):
		return 0, fmt.Errorf("%w: nothing was changed; %s, or begin a new log behind the newest snapshot with `lapse snapshot restore --new-log`", err, restore)
	case err != nil:
		return 0, fmt.Errorf("cannot check the files of stream: %w", err)
	}
	extent := Extent{Seq: max(last, stream.Indexed), By: "its index when the server stopped"}
	if isLog && slices.Contains(o.Databases, db) && o.Known != nil {
		if known := o.Known(db, strings.TrimSuffix(stream.Subject, ">")); known.Seq > extent.Seq || known.Seq == extent.Seq && known.Judged > 0 {
			extent = known
		}
	}
	refused := fmt.Errorf("%s: stream %s ends at %d, and went to %d by %s: nothing was changed; %s, or", stream.File, stream.Name, stream.Last, extent.Seq, extent.By, restore)
	switch {
	case extent.Seq <= stream.Last:
		return stream.Last, nil
	case stream.Last == 0 && o.SyncAlways:
		return 0, fmt.Errorf("%w begin a new log behind the newest snapshot with `lapse snapshot restore --new-log`", refused)
	case stream.Last == 0:
		return 0, nil // of which the processor has to know
	case o.SyncAlways && !o.AcceptLostEnd && isLog && extent.Judged > stream.Judged:
		return 0, fmt.Errorf("%w go on without what is lost with --accept-lost-end: %d mutations that were judged there are then judged again", refused, extent.Judged-stream.Judged)
	case o.SyncAlways && !o.AcceptLostEnd:
		return 0, fmt.Errorf("%w go on without what is lost with --accept-lost-end", refused)
	}
	return extent.Seq, nil
}
