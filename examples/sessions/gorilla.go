package sessions

import (
	"crypto/rand"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"time"

	"github.com/gorilla/securecookie"
	"github.com/gorilla/sessions"
)

// Gorilla is a sessions.Store. Save returns ErrEnded and ErrChanged.
type Gorilla struct {
	*Store
	Codecs  []securecookie.Codec // of the cookie, which has the id
	Options sessions.Options     // of new cookies
}

// loaded is the key in Values of the session as it was loaded.
type loaded struct{}

var gob securecookie.GobEncoder

// Get returns the session of a request.
func (g *Gorilla) Get(r *http.Request, name string) (*sessions.Session, error) {
	return sessions.GetRegistry(r).Get(g, name)
}

// New loads the session of a request, or makes a new one without an id.
func (g *Gorilla) New(r *http.Request, name string) (*sessions.Session, error) {
	session, options := sessions.NewSession(g, name), g.Options
	session.Options, session.IsNew = &options, true
	cookie, err := r.Cookie(name)
	if err != nil {
		return session, nil
	}
	var id string
	if err := securecookie.DecodeMulti(name, cookie.Value, &id, g.Codecs...); err != nil {
		return session, err
	}
	item, err := g.load(r.Context(), id)
	if err == nil {
		err = gob.Deserialize(item.Value.Data, &session.Values)
	}
	if err != nil {
		if errors.Is(err, ErrEnded) {
			err = nil
		}
		return session, err
	}
	session.ID, session.IsNew = id, false
	session.Values[loaded{}] = item
	return session, nil
}

// Save stores the session and its cookie. With Options.MaxAge below 0 it ends the session.
func (g *Gorilla) Save(r *http.Request, w http.ResponseWriter, s *sessions.Session) error {
	if s.Options.MaxAge < 0 {
		if err := g.remove(r.Context(), s.ID); s.ID != "" && err != nil && !errors.Is(err, ErrEnded) {
			return err
		}
		http.SetCookie(w, sessions.NewCookie(s.Name(), "", s.Options))
		return nil
	}
	values := maps.Clone(s.Values)
	delete(values, loaded{})
	data, err := gob.Serialize(values)
	if err != nil {
		return err
	}
	user := userOf(values[g.UserKey])
	item, known := s.Values[loaded{}].(session)
	old := map[any]any{}
	switch {
	case s.ID == "":
		s.ID = rand.Text()
		item, err = g.create(r.Context(), s.ID, user, data, time.Now().Add(g.Absolute))
	case !known:
		return ErrChanged // the program has replaced Values
	case gob.Deserialize(item.Value.Data, &old) != nil || !reflect.DeepEqual(old, values) || item.Value.User != user:
		item, err = g.save(r.Context(), item, user, data, time.Unix(item.Value.End, 0))
	}
	if err != nil {
		return err
	}
	s.Values[loaded{}] = item
	cookie, err := securecookie.EncodeMulti(s.Name(), s.ID, g.Codecs...)
	if err == nil {
		http.SetCookie(w, sessions.NewCookie(s.Name(), cookie, s.Options))
	}
	return err
}
