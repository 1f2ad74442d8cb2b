package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/schema"
)

// snapshotList answers snapshot.list.
func (r *Request) snapshotList() {
	ctx, cancel := r.context(statusTimeout)
	defer cancel()
	list, err := r.Retention.Snapshots.List(ctx)
	if err != nil {
		r.fail(err)
		return
	}
	r.replyJSON(200, map[string][]schema.Snapshot{"snapshots": append([]schema.Snapshot{}, list...)})
}

// snapshotCreate answers snapshot.create once the snapshot is made, which may take
// minutes.
func (r *Request) snapshotCreate() {
	r.exclusively(func(ctx context.Context) (schema.Snapshot, int, error) {
		snapshot, err := r.Retention.Snapshots.Create(ctx)
		if err == nil {
			// A snapshot by request replaces older ones as a scheduled one does.
			_, err = r.Retention.Drop(ctx, snapshot)
		}
		return snapshot, 201, err
	})
}

// snapshotVerify answers snapshot.verify.<sequence>.
func (r *Request) snapshotVerify() {
	seq, err := strconv.ParseUint(r.Tail, 10, 64)
	if err != nil {
		r.refuse(schema.ErrBadRequest.With("%s.%.40q: give the sequence of a snapshot", r.op, r.Tail))
		return
	}
	r.exclusively(func(ctx context.Context) (schema.Snapshot, int, error) {
		snapshot, err := r.Retention.Snapshots.Verify(ctx, seq)
		return snapshot, 200, err
	})
}

// exclusively runs work over a whole snapshot on a goroutine of its own, one at a time in the
// process; a second request is refused.
func (r *Request) exclusively(work func(context.Context) (schema.Snapshot, int, error)) {
	if !r.Retention.Snapshots.Making.TryLock() {
		r.refuse(schema.ErrOverloaded.With("%v", snapshot.ErrBusy))
		return
	}
	r.workers.Go(func() {
		defer r.recover()
		made, code, err := r.holding(work)
		switch {
		case errors.Is(err, snapshot.ErrNoSnapshot):
			r.refuse(schema.ErrSnapshotNotFound.With("%v", err))
		case r.ctx.Err() != nil:
			r.refuse(writer.Stopping)
		case err != nil:
			r.Config.Events(observe.RequestFailed{Operation: r.op, Err: err})
			r.refuse(schema.ErrUnavailable.With("%v: try again", err))
		default:
			r.replyJSON(code, made)
		}
	})
}

// holding does the work while Making is locked, and unlocks it before the reply.
func (r *Request) holding(work func(context.Context) (schema.Snapshot, int, error)) (schema.Snapshot, int, error) {
	defer r.Retention.Snapshots.Making.Unlock()
	return work(r.ctx)
}

// replyJSON replies with a value as JSON.
func (r *Request) replyJSON(code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		r.fail(fmt.Errorf("reply: %w", err))
		return
	}
	r.reply(code, nil, body)
}
