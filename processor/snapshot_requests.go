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
	ctx, cancel := context.WithTimeout(r.ctx, statusTimeout)
	defer cancel()
	list, err := r.keeper.snapshots.List(ctx)
	if err != nil {
		r.fail(err)
		return
	}
	r.replyJSON(200, map[string][]schema.Snapshot{"snapshots": append([]schema.Snapshot{}, list...)})
}

// snapshotCreate answers snapshot.create when the snapshot is made, which may
// take long: apart from the workers, and one at a time.
func (r *request) snapshotCreate() {
	if !r.noTail() {
		return
	}
	r.alone(func(ctx context.Context) (schema.Snapshot, int, error) {
		snapshot, err := r.keeper.snapshots.Create(ctx)
		if err == nil {
			err = r.keeper.tidy(ctx)
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

// alone runs what goes over a whole snapshot, unless something else does.
func (r *request) alone(work func(context.Context) (schema.Snapshot, int, error)) {
	if !r.copying.CompareAndSwap(false, true) {
		r.refuse(schema.ErrOverloaded.With("%v", errBusy))
		return
	}
	r.workers.Go(func() {
		defer r.recover()
		snapshot, code, err := r.copy(work)
		switch {
		case errors.Is(err, errBusy):
			r.refuse(schema.ErrOverloaded.With("%v", err))
		case errors.Is(err, errNoSnapshot):
			r.refuse(schema.ErrSnapshotNotFound.With("%v", err))
		case r.ctx.Err() != nil:
			r.refuse(stopping)
		case err != nil:
			r.logger.Error("a request failed", "op", r.op, "err", err)
			r.refuse(schema.ErrUnavailable.With("%v", err))
		default:
			r.replyJSON(code, snapshot)
		}
	})
}

// copy does the work and, before anybody is told, lets others begin theirs.
func (r *request) copy(work func(context.Context) (schema.Snapshot, int, error)) (schema.Snapshot, int, error) {
	defer r.copying.Store(false)
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
