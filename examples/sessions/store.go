// Package sessions keeps web sessions in lapse: stores for github.com/alexedwards/scs/v2
// and github.com/gorilla/sessions, and a handler that tells the browser of the end.
//
// A session ends when it was idle for too long, and at its absolute end at the latest. A
// logout is final: a request that began before it cannot bring the session back. Of two
// requests that change a session at the same time one fails with ErrChanged.
package sessions

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Errors of saving a session.
var (
	ErrEnded   = errors.New("the session has ended")
	ErrChanged = errors.New("another request has changed the session: load it again")
)

// Store keeps sessions in a collection with TTL on, such as client.TTLPerDocument.
type Store struct {
	Sessions *client.Collection
	Idle     time.Duration // without a request, in whole seconds; 0 is for ever
	Absolute time.Duration // after the login, for gorilla; scs has a Lifetime

	// UserKey is the key of the value in a session that names its user, for List and EndAll.
	// Without the included path /user these scan all sessions.
	UserKey string
}

type document struct {
	User string `json:"user,omitempty"`
	Data []byte `json:"data"`
	End  int64  `json:"end"`            // absolute end, unix seconds
	Last bool   `json:"last,omitempty"` // it expires at End, and is not touched any more
}

type session = client.Item[document]

// load returns a session, renewed if a tenth of its idle time is over, or ErrEnded.
func (s *Store) load(ctx context.Context, id string) (session, error) {
	item, err := client.Get[document](ctx, s.Sessions, id)
	if err != nil || s.Idle == 0 || item.Value.Last {
		return item, ended(err)
	}
	match, etag := client.IfMatch(item.ETag), ""
	if left := time.Until(time.Unix(item.Value.End, 0)); left <= 0 {
		return item, ErrEnded
	} else if left <= s.Idle {
		var last session
		last, err = client.Patch[document](ctx, s.Sessions, id, map[string]any{"last": true}, client.ExpireAt(time.Unix(item.Value.End, 0)), match)
		etag = last.ETag
	} else if time.Since(item.Modified) < s.Idle/10 {
		return item, nil
	} else {
		var touched client.Touched
		touched, err = client.Touch(ctx, s.Sessions, id, client.MinAge(max(s.Idle/10, time.Second).Truncate(time.Second)), match)
		etag = touched.ETag
	}
	if errors.Is(err, client.ErrPreconditionFailed) {
		return item, nil // another request has renewed it, or changed it, which save finds out
	}
	item.ETag = etag
	return item, ended(err)
}

// write returns the document of a session and the option that lets it end.
func (s *Store) write(user string, data []byte, end time.Time) (document, client.WriteOption) {
	last := s.Idle == 0 || time.Until(end) <= s.Idle
	doc := document{User: user, Data: data, End: end.Add(time.Second - 1).Unix(), Last: last}
	if last {
		return doc, client.ExpireAt(end)
	}
	return doc, client.TTL(s.Idle)
}

func (s *Store) create(ctx context.Context, id, user string, data []byte, end time.Time) (session, error) {
	doc, expiry := s.write(user, data, end)
	return client.Create(ctx, s.Sessions, id, doc, expiry)
}

// save replaces the session that load returned. Renewals by other requests are no changes.
func (s *Store) save(ctx context.Context, was session, user string, data []byte, end time.Time) (session, error) {
	doc, expiry := s.write(user, data, end)
	for {
		item, err := client.Replace(ctx, s.Sessions, was.ID, doc, expiry, client.IfMatch(was.ETag))
		if !errors.Is(err, client.ErrPreconditionFailed) {
			return item, ended(err)
		}
		now, err := client.Get[document](ctx, s.Sessions, was.ID)
		if err != nil {
			return now, ended(err)
		}
		if !bytes.Equal(now.Value.Data, was.Value.Data) {
			return now, ErrChanged
		}
		was = now
	}
}

// remove ends a session for good, or returns ErrEnded.
func (s *Store) remove(ctx context.Context, id string) error {
	return ended(client.Delete(ctx, s.Sessions, id))
}

func ended(err error) error {
	if errors.Is(err, client.ErrDocumentNotFound) {
		return ErrEnded
	}
	return err
}
