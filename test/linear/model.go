package linear

import "math"

// state is the model of a document between two operations.
type state struct {
	Lives   bool
	Content        // set if it lives, like Version and TS
	Version uint64 // 0 if no reply had it
	TS      int64  // of Version; a lower bound if Version is 0

	// Bounds for later versions: above lastVersion, not before lastTS.
	lastVersion uint64
	lastTS      int64
}

const never = math.MaxInt64

// deadline returns when the document expires, in seconds; a lower bound if Version is 0.
func (s state) deadline(defaultTTL int64) int64 {
	ttl := s.TTL
	if ttl == 0 {
		ttl = defaultTTL
	}
	if ttl == -1 {
		return never
	}
	return s.TS + ttl
}

// gone returns the state after the document ended.
func (s state) gone() state { return state{lastVersion: s.lastVersion, lastTS: s.lastTS} }

// step returns the possible states after an operation with its result; none if that
// result is impossible. defaultTTL is the collection's, -1 or seconds.
func step(s state, o *Operation, defaultTTL int64) (next []state) {
	if !unclear(o) {
		return told(s, o, defaultTTL)
	}
	next = append(next, s) // it may never happen
	if o.Kind != Get {
		next = append(next, done(s, o, defaultTTL)...)
	}
	return next
}

// unclear reports whether the outcome of the operation is unknown.
func unclear(o *Operation) bool { return o.Code == 0 && o.Version == 0 }

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

// mayLive and mayBeGone report whether an operation may find the document live, or gone.
func mayLive(s state, o *Operation, defaultTTL int64) bool {
	return s.Lives && (s.Version == 0 || earliest(o) < s.deadline(defaultTTL))
}

func mayBeGone(s state, o *Operation, defaultTTL int64) bool {
	return !s.Lives || latest(o) >= s.deadline(defaultTTL)
}

// told is step for an operation with a known outcome.
func told(s state, o *Operation, defaultTTL int64) []state {
	switch o.Code {
	case 404:
		if o.Kind != Create && (o.Kind != Upsert || o.IfMatch != 0) && mayBeGone(s, o, defaultTTL) {
			return []state{s.gone()}
		}
		return nil
	case 409:
		if o.Kind == Create && mayLive(s, o, defaultTTL) {
			return []state{s}
		}
		return nil
	case 412:
		if o.IfMatch != 0 && mayLive(s, o, defaultTTL) && s.Version != o.IfMatch {
			return []state{s}
		}
		return nil
	}
	if o.Kind == Get {
		if o.Code == 200 && mayLive(s, o, defaultTTL) && s.Version == o.Version && s.TS == o.TS && s.Content == o.Content {
			return []state{s}
		}
		return nil
	}
	return done(s, o, defaultTTL)
}

// done returns the possible states after a mutation that happened, replied to or not.
func done(s state, o *Operation, defaultTTL int64) (next []state) {
	if writes(o) && (o.Version <= s.lastVersion || o.TS < s.lastTS || o.TS < o.Called.Unix() || o.Code != 0 && o.TS > o.Returned.Unix()) {
		return nil
	}
	code := func(c int) bool { return o.Code == 0 || o.Code == c }
	lives := mayLive(s, o, defaultTTL) && (o.IfMatch == 0 || s.Version == 0 || s.Version == o.IfMatch)
	if lives && code(200) && o.Kind != Create && o.Kind != Delete {
		next = append(next, written(s, o)...)
	}
	if lives && code(204) && o.Kind == Delete {
		next = append(next, s.gone())
	}
	if mayBeGone(s, o, defaultTTL) && code(201) && (o.Kind == Create || o.Kind == Upsert && o.IfMatch == 0) {
		next = append(next, written(s.gone(), o)...)
	}
	return next
}

// written returns the state after a write that happened; none if its reply differs.
func written(s state, o *Operation) []state {
	n := s
	n.Lives = true
	n.N, n.Version = o.Write.N, o.Version
	if o.Kind != Patch {
		n.Base, n.TTL = o.Write.N, o.Write.TTL
	} else if o.Write.TTL != 0 {
		n.TTL = o.Write.TTL
	}
	if o.Version == 0 {
		n.TS = max(s.lastTS, o.Called.Unix())
		return []state{n}
	}
	if n.Content != o.Content {
		return nil
	}
	n.TS = o.TS
	n.lastVersion, n.lastTS = o.Version, o.TS
	return []state{n}
}
