package schema

import (
	"errors"
	"fmt"
	"strconv"
)

// Error is the error of a reply: an HTTP-like code, a stable name for programs, and a
// sentence for people with the fault and what is allowed. The name is the contract with
// programs, the message is not: it may change in any version. In JSON:
//
//	{"code":404,"error":"document_not_found","message":"…"}
type Error struct {
	Code    int    // 400 to 504
	Name    string // "document_not_found"
	Message string
}

// Sentinels, one for each error name. errors.Is matches an Error with its sentinel by
// name, whatever the message.
var (
	ErrBadRequest         = &Error{Code: 400, Name: "bad_request"}
	ErrBadTTL             = &Error{Code: 400, Name: "bad_ttl"}
	ErrBadID              = &Error{Code: 400, Name: "bad_id"}
	ErrBadQuery           = &Error{Code: 400, Name: "bad_query"}
	ErrCollectionNotFound = &Error{Code: 404, Name: "collection_not_found"}
	ErrDocumentNotFound   = &Error{Code: 404, Name: "document_not_found"}
	ErrVersionNotFound    = &Error{Code: 404, Name: "version_not_found"}
	ErrDatabaseNotFound   = &Error{Code: 404, Name: "database_not_found"}
	ErrSnapshotNotFound   = &Error{Code: 404, Name: "snapshot_not_found"}
	ErrDatabaseExists     = &Error{Code: 409, Name: "database_exists"}
	ErrCollectionExists   = &Error{Code: 409, Name: "collection_exists"}
	ErrDocumentExists     = &Error{Code: 409, Name: "document_exists"}
	ErrNotHeld            = &Error{Code: 409, Name: "not_held"}
	ErrPreconditionFailed = &Error{Code: 412, Name: "precondition_failed"}
	ErrTooLarge           = &Error{Code: 413, Name: "too_large"}
	ErrDocumentHeld       = &Error{Code: 423, Name: "document_held"}
	ErrFailedDependency   = &Error{Code: 424, Name: "failed_dependency"}
	ErrOverloaded         = &Error{Code: 429, Name: "overloaded"}
	ErrUnavailable        = &Error{Code: 503, Name: "unavailable"}
	ErrTimeout            = &Error{Code: 504, Name: "timeout"}
)

// With returns the sentinel's code and name with a message.
func (e *Error) With(format string, args ...any) *Error {
	return &Error{Code: e.Code, Name: e.Name, Message: fmt.Sprintf(format, args...)}
}

// Error returns the message, or the name if there is none.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Name
	}
	return e.Message
}

// Is makes errors.Is compare names only.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Name == e.Name
}

// Retryable reports whether the same request may succeed later: 429, 503 and 504. A write
// that failed with 504 may have been applied: repeat it under the same Nats-Msg-Id.
func (e *Error) Retryable() bool {
	return e.Code == ErrOverloaded.Code || e.Code == ErrUnavailable.Code || e.Code == ErrTimeout.Code
}

// Describe returns the text of err, and the code and name of the Error in it, if any:
// "… (404 document_not_found)".
func Describe(err error) string {
	if coded, ok := errors.AsType[*Error](err); ok {
		return fmt.Sprintf("%v (%d %s)", err, coded.Code, coded.Name)
	}
	return err.Error()
}

// AppendJSON appends {"code":…,"error":"…","message":"…"} to dst.
func (e *Error) AppendJSON(dst []byte) []byte {
	return append(e.appendFields(append(dst, '{')), '}')
}

// appendFields appends the members of the error, for an object that has others, too.
func (e *Error) appendFields(dst []byte) []byte {
	dst = append(dst, `"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code), 10)
	dst = append(dst, `,"error":`...)
	dst = AppendString(dst, e.Name)
	dst = append(dst, `,"message":`...)
	return AppendString(dst, e.Error())
}

// AsError returns err as an Error. One without a code becomes a 503: it is not the
// client's fault, and a retry may succeed.
func AsError(err error) *Error {
	var coded *Error
	if errors.As(err, &coded) {
		return coded
	}
	return ErrUnavailable.With("%v", err)
}
