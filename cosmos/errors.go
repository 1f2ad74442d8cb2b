package cosmos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/lapsedb/lapse/client"
)

// fault is an error in Cosmos DB's form. In the body: {"code":"NotFound","message":"…"}.
// SDKs decide by status and substatus whether to try again, refresh what they know of a
// container, or fail.
type fault struct {
	status    int
	substatus int
	message   string
	extra     string // additionalErrorInfo; "" for none
}

func (f *fault) Error() string { return f.message }

// Substatuses.
const (
	keyMismatch       = 1001 // 400: header and item have other partition keys
	sessionNotReached = 1002 // 404: the state of the session token isn't there yet
	noContainer       = 1003 // 404: the container isn't there
	crossPartition    = 1004 // 400: the query needs a plan
	otherContainer    = 1024 // 400: the container was created again
)

// faultf returns a fault with a message.
func faultf(status int, format string, args ...any) *fault {
	return &fault{status: status, message: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *fault {
	return faultf(http.StatusBadRequest, format, args...)
}

// notFound returns a 404 without substatus: the item, database or offer isn't there.
func notFound(format string, args ...any) *fault {
	return faultf(http.StatusNotFound, format, args...)
}

// codes are the names of statuses in error bodies, where they are not those of HTTP without
// spaces.
var codes = map[int]string{
	http.StatusPreconditionFailed:    "PreconditionFailed",
	http.StatusRequestEntityTooLarge: "RequestEntityTooLarge",
	449:                              "RetryWith",
}

// asFault returns an error of lapse in Cosmos DB's form. Most codes of lapse are those of
// Cosmos DB. A 504 becomes 408, which SDKs know as a time-out.
func asFault(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	coded, ok := errors.AsType[*client.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return faultf(http.StatusRequestTimeout, "the request was cancelled; a write may have been applied")
	case !ok:
		return faultf(http.StatusInternalServerError, "%v", err)
	}
	f := &fault{status: coded.Code, message: coded.Message}
	switch {
	case errors.Is(err, client.ErrCollectionNotFound):
		f.substatus = noContainer
	case errors.Is(err, client.ErrTimeout):
		f.status = http.StatusRequestTimeout
	}
	return f
}

// body returns the JSON of the error.
func (f *fault) body() []byte {
	code, ok := codes[f.status]
	if !ok {
		for _, c := range http.StatusText(f.status) {
			if c != ' ' {
				code += string(c)
			}
		}
	}
	text, _ := json.Marshal(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Extra   string `json:"additionalErrorInfo,omitempty"`
	}{code, f.message, f.extra})
	return text
}
