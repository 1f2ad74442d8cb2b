package linear

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/lapsedb/lapse/internal/model"
)

// state is a document between two operations.
type state struct {
	Lives   bool
	Content        // set if it lives, like Version and TS
	Version uint64 // 0 if no reply had it
	TS      int64  // of Version; a lower bound if Version is 0

	// Bounds for later versions: above lastVersion, not before lastTS.
	lastVersion uint64
	lastTS      int64
}

const never = math.MaxInt64 / 1000 // in seconds

// gone returns the state after the document ended.
func (s state) gone() state { return state{lastVersion: s.lastVersion, lastTS: s.lastTS} }

// earliest and latest bound the second at which an operation was decided. The _ts of a
// known write is that second.
func earliest(o *Operation) int64 {
	if writes(o) {
		return o.TS
	}
	return o.Called.Unix()
}

func latest(o *Operation) int64 {
	switch {
	case writes(o):
		return o.TS
	case o.Code == 0:
		return never
	}
	return o.Returned.Unix()
}

// writes reports whether the operation is known to have made a version.
func writes(o *Operation) bool { return o.Version != 0 && o.Kind != Get }

// step returns the possible states after an operation with its result; none if that
// result is impossible. defaultTTL is the collection's, -1 or seconds.
func step(s state, o *Operation, defaultTTL int64) (next []state) {
	if o.Code == 0 && o.Version == 0 {
		next = append(next, s) // it may never happen
	}
	if writes(o) && (o.Version <= s.lastVersion || o.TS < s.lastTS || o.TS < o.Called.Unix() || o.Code != 0 && o.TS > o.Returned.Unix()) {
		return nil
	}
	// The verdict changes at the deadline only.
	for _, now := range []int64{earliest(o), latest(o)} {
		for _, d := range s.documents(o, now) {
			if n, ok := after(s, o, d, now, defaultTTL); ok && !slices.Contains(next, n) {
				next = append(next, n)
			}
		}
	}
	return next
}

// documents returns what s may stand for. A version that no reply had may be of any later
// second, and be the one that If-Match names.
func (s state) documents(o *Operation, now int64) (all []map[string]model.Document) {
	if !s.Lives {
		return []map[string]model.Document{{}}
	}
	content := map[string]any{"n": float64(s.N), "base": float64(s.Base)}
	if s.TTL != 0 {
		content["ttl"] = float64(s.TTL)
	}
	d := model.Document{Version: s.Version, TS: s.TS, Content: content}
	all = append(all, map[string]model.Document{o.ID: d})
	if s.Version == 0 {
		for _, version := range []uint64{0, o.IfMatch} {
			d.Version, d.TS = version, now
			all = append(all, map[string]model.Document{o.ID: d})
		}
	}
	return all
}

// after returns the state after an operation that was decided at second now; ok is false
// if the model has another result.
func after(s state, o *Operation, documents map[string]model.Document, now, defaultTTL int64) (n state, ok bool) {
	m := model.New()
	m.Collections["c"] = &model.Collection{Properties: map[string]any{"defaultTtl": float64(defaultTTL)}, Documents: documents}
	w := model.Mutation{Op: "document." + string(o.Kind), Collection: "c", ID: o.ID, Body: o.document()}
	if o.IfMatch != 0 {
		w.IfMatch = strconv.FormatUint(o.IfMatch, 10)
	}
	v := m.Judge(w, now*1000)
	switch {
	case o.Code == 0 && v.Event == nil || o.Code != 0 && v.Code != o.Code:
		return n, false
	case o.Kind == Get && v.Code == 200:
		return s, s.Version == o.Version && s.TS == o.TS && s.Content == o.Content
	case v.Code == 404 || v.Code == 204:
		return s.gone(), true
	case v.Event == nil:
		return s, true
	}
	n = state{Lives: true, Version: o.Version, TS: max(s.lastTS, o.Called.Unix()), lastVersion: s.lastVersion, lastTS: s.lastTS}
	if err := json.Unmarshal(v.Event.Body, &n.Content); err != nil {
		return n, false
	}
	if o.Version != 0 {
		n.TS, n.lastVersion, n.lastTS = o.TS, o.Version, o.TS
	}
	return n, o.Version == 0 || n.Content == o.Content
}
