package sessions

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/lapsedb/lapse/client"
)

// SCS makes the manager keep its sessions here, and is its LoadAndSave. Set the manager's
// IdleTimeout and Lifetime first, and an ErrorFunc that answers ErrEnded and ErrChanged.
func (s *Store) SCS(manager *scs.SessionManager, next http.Handler) http.Handler {
	s.Idle = manager.IdleTimeout
	manager.Store = &scsStore{s, manager}
	next = manager.LoadAndSave(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, &request{loaded: map[string]session{}})))
	})
}

// request has the sessions that a request has loaded, by token: it may change these, and
// create others. Without it, as outside of a request, a commit is an upsert.
type request struct {
	mu     sync.Mutex
	loaded map[string]session
	ended  bool // another request has ended one of them
}

type requestKey struct{}

type scsStore struct {
	*Store
	manager *scs.SessionManager
}

// FindCtx returns the data of a session.
func (s *scsStore) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	item, err := s.load(ctx, token)
	if r, ok := ctx.Value(requestKey{}).(*request); ok && err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.loaded[token] = item
	}
	if errors.Is(err, ErrEnded) {
		return nil, false, nil
	}
	return item.Value.Data, err == nil, err
}

// CommitCtx stores a session. With an IdleTimeout scs commits sessions that have not
// changed, too, which load has renewed.
func (s *scsStore) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	end, values, err := s.manager.Codec.Decode(data)
	if err != nil {
		end = expiry
	}
	user := userOf(values[s.UserKey])
	r, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		doc, end := s.write(user, data, end)
		_, err := client.Upsert(ctx, s.Sessions, token, doc, end)
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	item, ok := r.loaded[token]
	switch {
	case ok:
		if oldEnd, old, err := s.manager.Codec.Decode(item.Value.Data); err == nil && oldEnd.Equal(end) && reflect.DeepEqual(old, values) && item.Value.User == user {
			return nil
		}
		item, err = s.save(ctx, item, user, data, end)
	case r.ended: // RenewToken would bring a session back whose logout came first
		err = ErrEnded
	default:
		item, err = s.create(ctx, token, user, data, end)
	}
	if err == nil {
		r.loaded[token] = item
	}
	return err
}

// DeleteCtx ends a session.
func (s *scsStore) DeleteCtx(ctx context.Context, token string) error {
	err := s.remove(ctx, token)
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, loaded := r.loaded[token]
		r.ended = r.ended || loaded && errors.Is(err, ErrEnded)
		delete(r.loaded, token)
	}
	if errors.Is(err, ErrEnded) {
		return nil
	}
	return err
}

func (s *scsStore) Find(token string) ([]byte, bool, error) {
	return s.FindCtx(context.Background(), token)
}

func (s *scsStore) Commit(token string, data []byte, expiry time.Time) error {
	return s.CommitCtx(context.Background(), token, data, expiry)
}

func (s *scsStore) Delete(token string) error { return s.DeleteCtx(context.Background(), token) }
