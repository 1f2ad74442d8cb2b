package processor

import (
	"slices"
	"strings"
)

// operationNames are what may follow lapse.<db>.api. in a subject.
var operationNames = [...]string{
	"collection.create", "collection.get", "collection.replace", "collection.delete", "collection.list",
	"document.create", "document.get", "document.replace", "document.upsert", "document.patch", "document.delete",
	"batch", "query", "history", "status",
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
