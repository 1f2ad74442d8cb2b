package processor

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

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
		log, err = openLog(try, c, o)
		return err
	})
	return log, err
}

// openLog opens the log, or creates it, but not if other processes have another one: an empty
// log in the wrong account would look sound to all who read it there.
func openLog(ctx context.Context, c eventlog.Connections, o Options) (*eventlog.Log, error) {
	log, err := eventlog.OpenExisting(ctx, c, o.forEventlog())
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return log, err
	}
	refusal := o.checkOthers(c, "")
	if refusal == nil {
		return eventlog.Open(ctx, c, o.forEventlog())
	}
	if log, err = eventlog.OpenExisting(ctx, c, o.forEventlog()); errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, refusal
	}
	return log, err // one of them has just created it
}

// checkOthers returns an error if another process serves the database from another log.
func (o Options) checkOthers(c eventlog.Connections, log string) error {
	if c.Only || o.Process == nil {
		return nil
	}
	return o.Process.CheckOthers(o.Database, log)
}

// RestoreSnapshot replaces the projection in o.Dir by a snapshot, the newest sound one if
// seq is 0; no processor may use the directory. The next one folds the rest of the log.
//
// If the snapshot belongs to another log, or the log ends before it, that is an error, unless
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
