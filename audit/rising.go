package audit

// rising checks that numbers rise. A drop is one finding: later numbers are compared with
// the number after the drop, not with those before it.
type rising struct {
	last int64
	odd  int64 // the number of the last finding, if isOdd
	any  bool

	isOdd bool
}

// next reports whether the next number exceeds the last by at least least.
func (r *rising) next(n, least int64) bool {
	if !r.any || n >= r.last+least || r.isOdd && n >= r.odd+least {
		r.last, r.any, r.isOdd = n, true, false
		return true
	}
	r.odd, r.isOdd = n, true
	return false
}
