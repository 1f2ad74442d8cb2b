package query

import "time"

// Limits of queries. A field that is 0 has its default.
type Limits struct {
	// Scanned limits the documents and index entries that one query reads; 5,000,000.
	Scanned int
	// Bytes limits a page; 4 MiB. A NATS message may hold less.
	Bytes int
	// SortBytes limits the memory of one query for sorting; 64 MiB.
	SortBytes int
	// Time limits the duration of one query; 5 s.
	Time time.Duration
	// ExpressionBytes limits the length of a condition; 8192.
	ExpressionBytes int
	// Nesting limits the nesting of a condition; 64.
	Nesting int
	// Cost limits a condition on one document, in CEL's units: a call or an iteration
	// is about one; 1,000,000.
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
