package query

import (
	"cmp"
	"time"
)

// Limits of queries. A field that is 0 has its default.
type Limits struct {
	Scanned int           `flag:"stop a query that scans more than [N] documents and index entries, with 413"` // 5,000,000
	Bytes   int           `flag:"end a page before it exceeds [SIZE] or max_payload of NATS"`                  // 4 MiB
	Time    time.Duration `flag:"stop a query after [DURATION] in the queue and running, with 504"`            // 5 s
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
