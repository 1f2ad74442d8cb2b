package schema

import (
	"slices"
	"strings"
)

// OperationInfo describes an operation of the API, whose requests have the subject
// lapse.<db>.api.<Name> followed by what Tail says.
type OperationInfo struct {
	Name    string
	Tail    Tail
	NoBody  bool // the body of a request is empty or {}
	Limit   Limit
	Standby bool // any process answers it; only the writer answers others
}

// Tail is what a subject has after an operation.
type Tail uint8

const (
	CollectionTail Tail = iota // .<collection>
	DocumentTail               // .<collection>.<id>
	SnapshotTail               // .<sequence>
	NoTail
)

// Limit is the time limit of a reply.
type Limit uint8

const (
	NoLimit    Limit = iota // mutations, which the writer decides, and work of any length
	ReadLimit               // a few seconds
	QueryLimit              // that of a query
)

// Operations are all operations. An index of it identifies one: see OperationIndex.
var Operations = [...]OperationInfo{
	{Name: "collection.create"},
	{Name: "collection.get", NoBody: true, Limit: ReadLimit, Standby: true},
	{Name: "collection.replace"},
	{Name: "collection.delete", NoBody: true},
	{Name: "collection.list", Tail: NoTail, Limit: ReadLimit, Standby: true},
	{Name: "document.create", Tail: DocumentTail},
	{Name: "document.get", Tail: DocumentTail, NoBody: true, Limit: ReadLimit, Standby: true},
	{Name: "document.replace", Tail: DocumentTail},
	{Name: "document.upsert", Tail: DocumentTail},
	{Name: "document.patch", Tail: DocumentTail},
	{Name: "document.delete", Tail: DocumentTail, NoBody: true},
	{Name: "document.touch", Tail: DocumentTail},
	{Name: "document.restore", Tail: DocumentTail},
	{Name: "document.hold", Tail: DocumentTail},
	{Name: "document.release", Tail: DocumentTail, NoBody: true},
	{Name: "batch", Limit: ReadLimit},
	{Name: "query", Limit: QueryLimit, Standby: true},
	{Name: "forecast", Limit: QueryLimit, Standby: true},
	{Name: "history", Tail: DocumentTail, Limit: ReadLimit, Standby: true},
	{Name: "status", Tail: NoTail, NoBody: true, Limit: ReadLimit, Standby: true},
	{Name: "snapshot.create", Tail: NoTail, NoBody: true},
	{Name: "snapshot.list", Tail: NoTail, NoBody: true, Limit: ReadLimit},
	{Name: "snapshot.verify", Tail: SnapshotTail, NoBody: true},
}

// Mutates reports whether the operation is a mutation, an Op.
func (o OperationInfo) Mutates() bool { return ParseOp(o.Name) != NoOp }

// OperationOf returns the description of an operation; only its Name is set if there is no
// such operation.
func OperationOf(name string) OperationInfo {
	if i := OperationIndex(name); i < len(Operations) {
		return Operations[i]
	}
	return OperationInfo{Name: name}
}

// OperationNames returns the names of the operations that choose returns true for; of all
// if it is nil.
func OperationNames(choose func(OperationInfo) bool) (names []string) {
	for _, o := range Operations {
		if choose == nil || choose(o) {
			names = append(names, o.Name)
		}
	}
	return names
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
func OperationIndex(name string) int {
	if i := slices.IndexFunc(Operations[:], func(o OperationInfo) bool { return o.Name == name }); i >= 0 {
		return i
	}
	return len(Operations)
}

// OperationName is the inverse of OperationIndex; "unknown" for any other index.
func OperationName(i int) string {
	if i < len(Operations) {
		return Operations[i].Name
	}
	return "unknown"
}
