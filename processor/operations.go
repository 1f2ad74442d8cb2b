package processor

import (
	"slices"
	"strings"
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

// operations counts requests by operation and code, for $SRV.STATS and metrics.
type operations struct {
	answers [len(operationNames) + 1]codes
}

// operationIndex is where an operation is counted: an unknown one behind the
// last.
func operationIndex(op string) int {
	i := slices.Index(operationNames[:], op)
	if i < 0 {
		i = len(operationNames)
	}
	return i
}

func operationName(i int) string {
	if i < len(operationNames) {
		return operationNames[i]
	}
	return "unknown"
}

type operationStats struct {
	Requests uint64 `json:"requests"`
	Errors   uint64 `json:"errors"`
}

func (o *operations) snapshot() map[string]operationStats {
	all := make(map[string]operationStats)
	for i := range len(operationNames) + 1 {
		var n operationStats
		for code := range o.answers[i] {
			count := o.answers[i][code].Load()
			n.Requests += count
			if code == len(replyCodes) || replyCodes[code] >= 400 {
				n.Errors += count
			}
		}
		if n.Requests > 0 {
			all[operationName(i)] = n
		}
	}
	return all
}

// stats is what $SRV.STATS says: the operations, and of the process what tells
// several of them apart.
func (s *service) stats() map[string]any {
	all := map[string]any{"process": processStats{Seq: s.store.Cursor().Seq, Waiting: s.waits()}}
	for operation, n := range s.operations.snapshot() {
		all[operation] = n
	}
	return all
}

type processStats struct {
	Seq     uint64 `json:"seq"`     // the last one folded
	Waiting int    `json:"waiting"` // requests
}

// waits is how many requests wait for a place to be judged or answered.
func (s *service) waits() int {
	return len(s.changes) + s.gets.len() + s.looks.len() + s.bodies.len() + s.queries.len() +
		len(s.writer.wishes) + int(s.waiting.Load())
}
