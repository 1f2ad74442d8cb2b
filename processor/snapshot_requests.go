package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/lapsedb/lapse/schema"
)

// snapshotList answers snapshot.list.
func (r *request) snapshotList() {
	if !r.noTail() {
		return
	}
	ctx, cancel := r.context(statusTimeout)
	defer cancel()
	list, err := r.keeper.snapshots.List(ctx)
	if err != nil {
		r.fail(err)
		return
	}
	r.replyJSON(200, map[string][]schema.Snapshot{"snapshots": append([]schema.Snapshot{}, list...)})
}

// snapshotCreate answers snapshot.create when the snapshot is made, which may
// take long.
func (r *request) snapshotCreate() {
	if !r.noTail() {
		return
	}
	r.alone(func(ctx context.Context) (schema.Snapshot, int, error) {
		snapshot, err := r.keeper.snapshots.Create(ctx)
		if err == nil {
			_, err = r.keeper.drop(ctx)
		}
		return snapshot, 201, err
	})
}

// snapshotVerify answers snapshot.verify.<sequence>.
func (r *request) snapshotVerify() {
	seq, err := strconv.ParseUint(r.tail, 10, 64)
	if err != nil {
		r.refuse(schema.ErrBadRequest.With("%s.%.40q: give the sequence of a snapshot", r.op, r.tail))
		return
	}
	r.alone(func(ctx context.Context) (schema.Snapshot, int, error) {
		snapshot, err := r.keeper.snapshots.Verify(ctx, seq)
		return snapshot, 200, err
	})
}

// alone runs what goes over a whole snapshot apart from the workers, unless
// something else does so now.
func (r *request) alone(work func(context.Context) (schema.Snapshot, int, error)) {
	if !r.keeper.snapshots.making.TryLock() {
		r.refuse(schema.ErrOverloaded.With("%v", errBusy))
		return
	}
	r.workers.Go(func() {
		defer r.recover()
		made, code, err := r.holding(work)
		switch {
		case errors.Is(err, errNoSnapshot):
			r.refuse(schema.ErrSnapshotNotFound.With("%v", err))
		case r.ctx.Err() != nil:
			r.refuse(stopping)
		case err != nil:
			r.config.Events.RequestFailed(RequestFailure{Operation: r.op, Err: err})
			r.refuse(schema.ErrUnavailable.With("%v", err))
		default:
			r.replyJSON(code, made)
		}
	})
}

// holding does the work with the lock of the snapshots, which it gives back
// before anybody is told.
func (r *request) holding(work func(context.Context) (schema.Snapshot, int, error)) (schema.Snapshot, int, error) {
	defer r.keeper.snapshots.making.Unlock()
	return work(r.ctx)
}

func (r *request) replyJSON(code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		r.fail(fmt.Errorf("reply: %w", err))
		return
	}
	r.reply(code, nil, body)
}
