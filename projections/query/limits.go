package query

import (
	"cmp"
	"time"
)

// Limits of queries. A field that is 0 has its default.
type Limits struct {
	// Scanned limits the documents and index entries that one query reads; 5,000,000.
	Scanned int
	// Bytes limits a page, which ends before the document that would exceed it; 4 MiB. A
	// NATS message may hold less.
	Bytes int
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
	l.Scanned = cmp.Or(l.Scanned, 5_000_000)
	l.Bytes = cmp.Or(l.Bytes, 4<<20)
	l.Time = cmp.Or(l.Time, 5*time.Second)
	l.ExpressionBytes = cmp.Or(l.ExpressionBytes, 8192)
	l.Nesting = cmp.Or(l.Nesting, 64)
	l.Cost = cmp.Or(l.Cost, 1_000_000)
	return l
}
