package processor

import (
	"slices"
	"strings"
	"sync/atomic"
)

// operationNames are what may follow lapse.<db>.api. in a subject.
var operationNames = [...]string{
	"collection.create", "collection.get", "collection.replace", "collection.delete", "collection.list",
	"document.create", "document.get", "document.replace", "document.upsert", "document.patch", "document.delete",
	"batch", "query", "forecast", "history", "status",
	"snapshot.create", "snapshot.list", "snapshot.verify",
}

// splitOperation takes the operation off the front of a subject's tail.
func splitOperation(tail string) (op, rest string) {
	op, rest, more := strings.Cut(tail, ".")
	if more && (op == "collection" || op == "document" || op == "snapshot") {
		second, after, _ := strings.Cut(rest, ".")
		return tail[:len(op)+1+len(second)], after
	}
	return op, rest
}

// operations counts requests by operation, for $SRV.STATS.
type operations struct {
	counts [len(operationNames) + 1]struct{ requests, errors atomic.Uint64 }
}

func (o *operations) count(op string, failed bool) {
	// An unknown operation is counted behind the last one.
	i := slices.Index(operationNames[:], op)
	if i < 0 {
		i = len(operationNames)
	}
	o.counts[i].requests.Add(1)
	if failed {
		o.counts[i].errors.Add(1)
	}
}

type operationStats struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
}

func (o *operations) snapshot() map[string]operationStats {
	all := make(map[string]operationStats)
	for i := range len(operationNames) + 1 {
		name := "unknown"
		if i < len(operationNames) {
			name = operationNames[i]
		}
		if n := o.counts[i].requests.Load(); n > 0 {
			all[name] = operationStats{Requests: n, Errors: o.counts[i].errors.Load()}
		}
	}
	return all
}
