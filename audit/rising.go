package audit

// rising checks that numbers rise. A drop is one finding: the numbers after it are
// compared with it, not with those before.
type rising struct {
	last int64
	odd  int64 // the last one told, if isOdd
	any  bool

	isOdd bool
}

// next reports whether the next number is greater than the last by least or more.
func (r *rising) next(n, least int64) bool {
	if !r.any || n >= r.last+least || r.isOdd && n >= r.odd+least {
		r.last, r.any, r.isOdd = n, true, false
		return true
	}
	r.odd, r.isOdd = n, true
	return false
}
