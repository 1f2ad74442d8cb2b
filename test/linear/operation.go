package linear

import (
	"fmt"
	"strings"
	"time"
)

// Kind is what an operation does.
type Kind string

const (
	Get     Kind = "get"
	Create  Kind = "create"
	Replace Kind = "replace"
	Upsert  Kind = "upsert"
	Patch   Kind = "patch"
	Delete  Kind = "delete"
)

// Content is what a document holds. Every write has an N of its own, so that
// what is read says who wrote it; a patch leaves Base as it was, and TTL too
// if it names none.
type Content struct {
	N    int   `json:"n"`
	Base int   `json:"base"`
	TTL  int64 `json:"ttl,omitempty"` // seconds, -1 for never, 0 to inherit
}

// Result is what a client was told.
type Result struct {
	Code    int    // 0 if nobody knows the outcome
	Content        // of the document in the reply, where there is one
	Version uint64 // its _etag
	TS      int64  // its _ts, s
	Seq     uint64 // Lapse-Seq
}

// Operation is one thing that a client did.
type Operation struct {
	Client  int
	ID      string
	Kind    Kind
	Write   Content // what create, replace, upsert and patch write; the latter no Base
	IfMatch uint64  // 0 for none

	// Called and Returned are read from the clock that the server has, too,
	// before the first and after the last attempt. Call and Return number the
	// same moments among those of all operations.
	Called, Returned time.Time
	Call, Return     int64

	Attempts int
	Result
}

// refused tells whether the operation came out as one that changes nothing.
func (o *Operation) refused() bool { return o.Code >= 400 }

// late is what an earlier request of a refused operation may do yet, which under
// its Nats-Msg-Id is done once at most.
func (o *Operation) late() Operation {
	l := *o
	l.Result = Result{}
	return l
}

// Settle fills in what a log says of writes of which nobody was told: written are
// the versions that it has, by N. Those that it does not have did not happen, and
// are left out.
func Settle(operations []Operation, written map[int]Result) (settled []Operation) {
	for _, o := range operations {
		if o.Code == 0 && o.Kind != Get && o.Kind != Delete {
			version, ok := written[o.Write.N]
			if !ok {
				continue
			}
			o.Content, o.Version, o.TS = version.Content, version.Version, version.TS
		}
		settled = append(settled, o)
	}
	return settled
}

func (o *Operation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%d %s, ", o.Call, o.Called.Format("05.000"))
	if o.Code == 0 {
		b.WriteString("never]")
	} else {
		fmt.Fprintf(&b, "%d %s]", o.Return, o.Returned.Format("05.000"))
	}
	fmt.Fprintf(&b, " client %d: %s %s", o.Client, o.Kind, o.ID)
	if o.Kind != Get && o.Kind != Delete {
		fmt.Fprintf(&b, " n=%d", o.Write.N)
		if o.Write.TTL != 0 {
			fmt.Fprintf(&b, " ttl=%d", o.Write.TTL)
		}
	}
	if o.IfMatch != 0 {
		fmt.Fprintf(&b, " if-match=%d", o.IfMatch)
	}
	fmt.Fprintf(&b, " -> %d", o.Code)
	if o.Version != 0 {
		fmt.Fprintf(&b, " n=%d base=%d ttl=%d version=%d ts=%02d", o.N, o.Base, o.TTL, o.Version, o.TS%60)
	}
	if o.Attempts > 1 {
		fmt.Fprintf(&b, ", asked %d times", o.Attempts)
	}
	return b.String()
}
