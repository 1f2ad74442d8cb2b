package schema

import (
	"slices"
	"strings"
)

// Operations are the operations in a subject, after lapse.<db>.api.
var Operations = [...]string{
	"collection.create", "collection.get", "collection.replace", "collection.delete", "collection.list",
	"document.create", "document.get", "document.replace", "document.upsert", "document.patch", "document.delete", "document.touch",
	"document.restore", "document.hold", "document.release",
	"batch", "query", "forecast", "history", "status",
	"snapshot.create", "snapshot.list", "snapshot.verify",
}

// SplitOperation splits a subject's tail into the operation and the rest after its dot.
func SplitOperation(tail string) (op, rest string) {
	op, rest, more := strings.Cut(tail, ".")
	if more && (op == "collection" || op == "document" || op == "snapshot") {
		second, after, _ := strings.Cut(rest, ".")
		return tail[:len(op)+1+len(second)], after
	}
	return op, rest
}

// OperationIndex returns the index of an operation in Operations, len(Operations) for an
// unknown one.
func OperationIndex(op string) int {
	if i := slices.Index(Operations[:], op); i >= 0 {
		return i
	}
	return len(Operations)
}

// OperationName is the inverse of OperationIndex; "unknown" for any other index.
func OperationName(i int) string {
	if i < len(Operations) {
		return Operations[i]
	}
	return "unknown"
}
