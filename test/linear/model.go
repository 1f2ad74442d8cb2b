package linear

import "math"

// state is a document as the model has it, between two operations.
type state struct {
	Lives   bool
	Content        // as the next three if it lives
	Version uint64 // 0: nobody was told
	TS      int64  // of the version; if that is 0, it is this or later

	// What the document's later versions have to be beyond.
	lastVersion uint64
	lastTS      int64
}

const never = math.MaxInt64

// deadline is when the document expires, in seconds; if the version is not
// known, not before then.
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

// gone is the document after it ended.
func (s state) gone() state { return state{lastVersion: s.lastVersion, lastTS: s.lastTS} }

// step returns what a document may be after an operation came out as it did;
// nothing if it cannot have come out so. defaultTTL is the collection's, -1 or
// seconds.
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

// unclear tells whether nobody knows if the operation happened.
func unclear(o *Operation) bool { return o.Code == 0 && o.Version == 0 }

// earliest and latest bound the second at which an operation was judged. What
// it wrote says it.
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

// writes tells whether the operation is known to have made a version.
func writes(o *Operation) bool { return o.Version != 0 && o.Kind != Get }

// mayLive and mayBeGone tell how an operation may find the document.
func mayLive(s state, o *Operation, defaultTTL int64) bool {
	return s.Lives && (s.Version == 0 || earliest(o) < s.deadline(defaultTTL))
}

func mayBeGone(s state, o *Operation, defaultTTL int64) bool {
	return !s.Lives || latest(o) >= s.deadline(defaultTTL)
}

// told is step for an operation whose outcome is known.
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

// done is what is after a mutation that happened, told or not.
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

// written is the document after a write that happened to it.
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
