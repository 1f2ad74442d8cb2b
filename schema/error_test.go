package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

var sentinels = []*Error{ErrBadRequest, ErrBadTTL, ErrBadID, ErrBadQuery, ErrCollectionNotFound,
	ErrDocumentNotFound, ErrVersionNotFound, ErrSnapshotNotFound, ErrCollectionExists, ErrDocumentExists,
	ErrNotHeld, ErrPreconditionFailed, ErrTooLarge, ErrDocumentHeld, ErrFailedDependency, ErrOverloaded, ErrUnavailable, ErrTimeout}

func TestErrorIsComparesNames(t *testing.T) {
	for _, sentinel := range sentinels {
		wrapped := fmt.Errorf("while judging: %w", sentinel.With("document %q", "a"))
		for _, other := range sentinels {
			if got := errors.Is(wrapped, other); got != (sentinel == other) {
				t.Errorf("%s is %s: %v", sentinel.Name, other.Name, got)
			}
		}
	}
	if errors.Is(ErrTimeout, context.DeadlineExceeded) {
		t.Error("a coded error is mistaken for one without a code")
	}
}

// TestWithCopiesSentinel: With does not write to the sentinel, which all
// goroutines share.
func TestWithCopiesSentinel(t *testing.T) {
	if got := ErrBadID.With("first"); got == ErrBadID || ErrBadID.Message != "" {
		t.Fatalf("the sentinel says %q", ErrBadID.Message)
	}
}

func TestErrorJSON(t *testing.T) {
	for _, test := range []struct {
		err  *Error
		want string
	}{
		{ErrDocumentNotFound.With("no document %q", "a"), `{"code":404,"error":"document_not_found","message":"no document \"a\""}`},
		{ErrTimeout, `{"code":504,"error":"timeout","message":"timeout"}`},
		{ErrBadRequest.With("<\n\x00\xff>"), `{"code":400,"error":"bad_request","message":"<\n\u0000` + "\uFFFD" + `>"}`},
	} {
		got := test.err.AppendJSON([]byte("prefix "))
		if string(got) != "prefix "+test.want || !json.Valid([]byte(test.want)) {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestAsError(t *testing.T) {
	coded := ErrTooLarge.With("too much")
	if got := AsError(fmt.Errorf("outside: %w", coded)); got != coded {
		t.Errorf("a coded error became %v", got)
	}
	got := AsError(errors.New("disk full"))
	if !errors.Is(got, ErrUnavailable) || got.Code != 503 || got.Message != "disk full" {
		t.Errorf("an error without a code became %d %s %q", got.Code, got.Name, got.Message)
	}
}
