package query

import "time"

// Limits of queries. Each is a default where it is 0.
type Limits struct {
	// Scanned is how many documents and index entries one query may look at;
	// 5,000,000.
	Scanned int
	// Bytes is how large a page may be; 4 MiB. A message of NATS may hold less.
	Bytes int
	// SortBytes is how much memory one query may use to sort; 64 MiB.
	SortBytes int
	// Time is how long one query may take; 5 s.
	Time time.Duration
	// ExpressionBytes is how long a condition may be; 8192.
	ExpressionBytes int
	// Nesting is how deep a condition may nest; 64.
	Nesting int
	// Cost is how much a condition may cost on one document, in CEL's units, of
	// which a call or an iteration is about one; 1,000,000.
	Cost uint64
}

// EnsureDefaults returns l with its zero values filled in.
func (l Limits) EnsureDefaults() Limits {
	if l.Scanned == 0 {
		l.Scanned = 5_000_000
	}
	if l.Bytes == 0 {
		l.Bytes = 4 << 20
	}
	if l.SortBytes == 0 {
		l.SortBytes = 64 << 20
	}
	if l.Time == 0 {
		l.Time = 5 * time.Second
	}
	if l.ExpressionBytes == 0 {
		l.ExpressionBytes = 8192
	}
	if l.Nesting == 0 {
		l.Nesting = 64
	}
	if l.Cost == 0 {
		l.Cost = 1_000_000
	}
	return l
}
