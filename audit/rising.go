package audit

// rising watches numbers that should rise. One that does not is told once: if
// the numbers behind it rise from there, they are taken to be in their place
// and those before it out of theirs.
type rising struct {
	last int64
	odd  int64 // the last one told, if isOdd
	any  bool

	isOdd bool
}

// next takes the next number and tells whether it is at least least more than
// the last one.
func (r *rising) next(n, least int64) bool {
	if !r.any || n >= r.last+least || r.isOdd && n >= r.odd+least {
		r.last, r.any, r.isOdd = n, true, false
		return true
	}
	r.odd, r.isOdd = n, true
	return false
}
