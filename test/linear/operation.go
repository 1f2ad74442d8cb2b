package linear

import (
	"fmt"
	"strings"
	"time"
)

// Kind is the type of an operation.
type Kind string

const (
	Get     Kind = "get"
	Create  Kind = "create"
	Replace Kind = "replace"
	Upsert  Kind = "upsert"
	Patch   Kind = "patch"
	Delete  Kind = "delete"
)

// Content is the content of a document. Every write has its own N, so that a read shows
// which write it sees; a patch leaves Base as it was, and TTL too if it names none.
type Content struct {
	N    int   `json:"n"`
	Base int   `json:"base"`
	TTL  int64 `json:"ttl,omitempty"` // seconds, -1 for never, 0 to inherit
}

// Result is the content of a reply.
type Result struct {
	Code    int    // 0 if the outcome is unknown
	Content        // of the document in the reply, where there is one
	Version uint64 // its _etag
	TS      int64  // its _ts, s
	Seq     uint64 // Lapse-Seq
}

// Operation is one operation of a client.
type Operation struct {
	Client  int
	ID      string
	Kind    Kind
	Write   Content // written by create, replace, upsert and patch; a patch has no Base
	IfMatch uint64  // 0 for none

	// Called and Returned are times before the first and after the last attempt, by the
	// clock that the server uses, too. Call and Return number the same moments among
	// those of all operations.
	Called, Returned time.Time
	Call, Return     int64

	Attempts int
	Result
}

// refused reports whether the reply is an error, so that this operation changed nothing.
func (o *Operation) refused() bool { return o.Code >= 400 }

// late returns the possible late effect of an earlier request of a refused operation. Its
// Nats-Msg-Id allows at most one.
func (o *Operation) late() Operation {
	l := *o
	l.Result = Result{}
	return l
}

// Settle fills in the outcome of writes without a reply from a log: written are its
// versions, by N. Writes that it lacks did not happen, and are left out.
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
