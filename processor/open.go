package processor

import (
	"context"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/schema"
)

// openStreams checks the streams that exist, before it changes anything, and opens or
// creates the log.
func openStreams(ctx context.Context, c eventlog.Connections, o Options) (log *eventlog.Log, err error) {
	if err := eventlog.CheckVersion(c.Log); err != nil {
		return nil, err
	}
	err = eventlog.UntilOpen(ctx, c, func(try context.Context) error {
		if err := eventlog.CheckStreams(try, c, o.forEventlog()); err != nil {
			return err
		}
		if o.Lease > 0 {
			if err := lease.Check(try, c.Log, o.Database, o.Replicas); err != nil {
				return err
			}
		}
		log, err = eventlog.Open(try, c, o.forEventlog())
		return err
	})
	return log, err
}

// RestoreSnapshot replaces the projection in o.Dir by a snapshot, the newest sound one if
// seq is 0; no processor may use the directory. The next one folds the rest of the log.
//
// If the snapshot is of another log, or the log ends before it, that is an error, unless
// newLog is given: then an empty log that begins after the snapshot replaces it, and
// later events are lost.
func RestoreSnapshot(ctx context.Context, c eventlog.Connections, o Options, seq uint64, newLog bool) (schema.Snapshot, error) {
	o = o.EnsureDefaults().watched()
	return snapshot.RestoreSnapshot(ctx, c, o.forSnapshots(), seq, newLog, func() error {
		if c.Service == nil {
			return nil
		}
		return peers.CheckNobody(ctx, c.Service, o.Database)
	})
}
