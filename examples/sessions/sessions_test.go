package sessions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/gorilla/securecookie"
	"github.com/gorilla/sessions"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/examples/internal/server"
	"github.com/lapsedb/lapse/lapsetest/bubble"
)

const (
	idle     = 10 * time.Minute
	absolute = 40 * time.Minute
)

// app is a web application: each request runs a function with a session's user and cart.
type app struct {
	store   *Store
	handler http.Handler
}

// shop is what a request of the app does, by either library.
type shop interface {
	user() string
	put(user string)
	logout()
	renew() // login: a new id
}

type shopKey struct{}

// run sends a request with a cookie, and returns the new one and the error of its save.
func (a *app) run(cookie string, do func(shop)) (next string, err error) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Cookie", cookie)
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), shopKey{}, func(s shop) { do(s) })))
	switch w.Code {
	case http.StatusGone:
		return cookie, ErrEnded
	case http.StatusConflict:
		return cookie, ErrChanged
	case http.StatusOK:
	default:
		return cookie, errors.New(w.Body.String())
	}
	for _, c := range w.Result().Cookies() {
		cookie = c.Name + "=" + c.Value
	}
	return cookie, nil
}

func answer(w http.ResponseWriter, _ *http.Request, err error) {
	switch {
	case errors.Is(err, ErrEnded):
		w.WriteHeader(http.StatusGone)
	case errors.Is(err, ErrChanged):
		w.WriteHeader(http.StatusConflict)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

type scsShop struct {
	m   *scs.SessionManager
	ctx context.Context
	t   testing.TB
}

func (s scsShop) user() string { return s.m.GetString(s.ctx, "user") }
func (s scsShop) put(user string) {
	s.m.Put(s.ctx, "user", user)
	s.m.Put(s.ctx, "other", time.Now().UnixNano())
}
func (s scsShop) logout() { check(s.t, s.m.Destroy(s.ctx)) }
func (s scsShop) renew()  { check(s.t, s.m.RenewToken(s.ctx)) }

// manager returns a manager without the default store, whose goroutine never ends.
func manager() *scs.SessionManager {
	return &scs.SessionManager{Codec: scs.GobCodec{}, Cookie: scs.SessionCookie{Name: "session", Path: "/"}}
}

func scsApp(t testing.TB, coll *client.Collection) *app {
	m, store := manager(), &Store{Sessions: coll, UserKey: "user"}
	m.IdleTimeout, m.Lifetime, m.ErrorFunc = idle, absolute, answer
	return &app{store, store.SCS(m, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Context().Value(shopKey{}).(func(shop))(scsShop{m, r.Context(), t})
	}))}
}

type gorillaShop struct{ *sessions.Session }

func (s gorillaShop) user() string { user, _ := s.Values["user"].(string); return user }
func (s gorillaShop) put(user string) {
	s.Values["user"], s.Values["other"] = user, time.Now().UnixNano()
}
func (s gorillaShop) logout() { s.Options.MaxAge = -1 }
func (s gorillaShop) renew()  {}

func gorillaApp(_ testing.TB, coll *client.Collection) *app {
	store := &Store{Sessions: coll, Idle: idle, Absolute: absolute, UserKey: "user"}
	g := &Gorilla{Store: store, Codecs: securecookie.CodecsFromPairs([]byte("0123456789abcdef0123456789abcdef")), Options: sessions.Options{Path: "/"}}
	return &app{store, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := g.Get(r, "s")
		if err == nil {
			r.Context().Value(shopKey{}).(func(shop))(gorillaShop{s})
			if s.ID != "" || len(s.Values) > 0 {
				err = s.Save(r, w)
			}
		}
		if err != nil {
			answer(w, r, err)
		}
	})}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func collection(t testing.TB, c *client.Client) *client.Collection {
	t.Helper()
	coll, err := c.CreateCollection(t.Context(), "sessions", client.TTLPerDocument(), client.IncludePaths("/user"))
	check(t, err)
	return coll
}

func nothing(shop) {}

// races is what both libraries have to do.
func races(t *testing.T, a *app) {
	t.Helper()
	login := func(user string) string {
		t.Helper()
		cookie, err := a.run("", func(s shop) { s.put(user) })
		check(t, err)
		return cookie
	}
	wantUser := func(cookie, want string) {
		t.Helper()
		_, err := a.run(cookie, func(s shop) {
			if got := s.user(); got != want {
				t.Errorf("the session has the user %q, want %q", got, want)
			}
		})
		check(t, err)
	}
	want := func(got, want error) {
		t.Helper()
		if got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}

	// A logout during a request stays a logout, whether that changes the session or not.
	for _, change := range []bool{true, false} {
		cookie := login("ann")
		_, err := a.run(cookie, func(s shop) {
			_, err := a.run(cookie, shop.logout)
			check(t, err)
			if change {
				s.put("bob")
			}
		})
		if change {
			want(err, ErrEnded)
		} else {
			want(err, nil)
		}
		wantUser(cookie, "")
	}
	// Two logouts are one.
	cookie := login("ann")
	_, err := a.run(cookie, func(s shop) {
		_, err := a.run(cookie, shop.logout)
		check(t, err)
		s.logout()
	})
	want(err, nil)

	// Of two tabs that change the session one fails, and changes nothing.
	cookie = login("ann")
	_, err = a.run(cookie, func(s shop) {
		_, err := a.run(cookie, func(s shop) { s.put("bob") })
		check(t, err)
		s.put("cy")
	})
	want(err, ErrChanged)
	wantUser(cookie, "bob")
	_, err = a.run(cookie, func(s shop) { s.put("di") })
	want(err, nil)
	wantUser(cookie, "di")
}

// TestVirtual: sessions under races and at their ends, in virtual time.
func TestVirtual(t *testing.T) {
	for _, library := range []struct {
		name string
		app  func(testing.TB, *client.Collection) *app
	}{{"scs", scsApp}, {"gorilla", gorillaApp}} {
		t.Run(library.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T, s *bubble.Server) {
				c := s.Client(t)
				a := library.app(t, collection(t, c))
				races(t, a)
				ends(t, c, a)
				ofUsers(t, a)
			})
		})
	}
}

func ends(t *testing.T, c *client.Client, a *app) {
	time.Sleep(2 * idle) // the sessions of races
	began := time.Now()
	cookie, err := a.run("", func(s shop) { s.put("ann") })
	check(t, err)
	_, from, err := c.LogBounds(t.Context())
	check(t, err)
	// A renewal by another tab, between load and save, is no conflict.
	time.Sleep(idle / 3)
	_, err = a.run(cookie, func(s shop) {
		time.Sleep(idle / 3)
		_, err := a.run(cookie, nothing)
		check(t, err)
		s.put("bob")
	})
	check(t, err)
	// Requests renew it each tenth of the idle time, up to the absolute end.
	for time.Since(began) < absolute-idle/20 {
		time.Sleep(idle / 30)
		_, err := a.run(cookie, func(s shop) {
			if s.user() != "bob" {
				t.Fatalf("%v after the login the user is %q", time.Since(began), s.user())
			}
		})
		check(t, err)
	}
	time.Sleep(idle / 15)
	// Without requests another one ends when it was idle.
	idler, err := a.run("", func(s shop) { s.put("eve") })
	check(t, err)
	time.Sleep(idle - time.Second)
	_, err = a.run(idler, func(s shop) {
		if s.user() != "eve" {
			t.Error("an idle session ended too early")
		}
	})
	check(t, err)
	lastUse := time.Now()
	time.Sleep(idle + time.Second)
	var touches int
	var expired []time.Time
	for e, err := range c.Changes(t.Context(), client.FromSeq(from+1), client.UntilNow()) {
		check(t, err)
		switch e.Type {
		case client.DocumentTouched:
			touches++
		case client.DocumentExpired:
			expired = append(expired, e.Deadline)
		}
	}
	if touches < 20 || touches > 30 { // of 100 requests
		t.Errorf("%d touches, want one each tenth of the idle time", touches)
	}
	if len(expired) != 2 || expired[0].Sub(began.Add(absolute)).Abs() > time.Second || expired[1].Sub(lastUse.Add(idle)).Abs() > time.Second {
		t.Errorf("began %v, last use %v, expired %v", began, lastUse, expired)
	}
}

// TestServer: the same races on lapse serve, and the browser hears of each end.
func TestServer(t *testing.T) {
	c := server.Connect(t)
	coll := collection(t, c)
	races(t, scsApp(t, coll))
	races(t, gorillaApp(t, coll))

	ctx := t.Context()
	store := &Store{Sessions: coll}
	ends, err := store.Watch(ctx, c, func(r *http.Request) string { return r.URL.Query().Get("id") }, func(err error) {
		if ctx.Err() == nil {
			t.Error(err)
		}
	})
	check(t, err)
	web := httptest.NewServer(ends)
	defer web.Close()
	for i, end := range []struct {
		want string
		ttl  time.Duration
	}{{"expired", time.Second}, {"logout", time.Hour}} {
		id := fmt.Sprint("browser", i)
		_, err := store.create(ctx, id, "", []byte("x"), time.Now().Add(end.ttl))
		check(t, err)
		response, err := http.Get(web.URL + "?id=" + id) // returns once the handler waits
		check(t, err)
		if end.want == "logout" {
			check(t, store.remove(ctx, id))
		}
		var text bytes.Buffer
		_, err = text.ReadFrom(response.Body)
		check(t, err)
		check(t, response.Body.Close())
		if !strings.Contains(text.String(), "data: "+end.want) {
			t.Errorf("the browser hears %q, want %s", text.String(), end.want)
		}
	}
	response, err := http.Get(web.URL + "?id=browser0")
	check(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("a session that has ended: %s", response.Status)
	}
}

// lateWriter calls before between the begin of a wait and the look at the session.
type lateWriter struct {
	*httptest.ResponseRecorder
	before func()
}

func (w lateWriter) Header() http.Header { w.before(); return w.ResponseRecorder.Header() }

// TestEndsMeanwhile: requests hear of a session that ends while they begin to wait.
func TestEndsMeanwhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		c := s.Client(t)
		store := &Store{Sessions: collection(t, c)}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ends, err := store.Watch(ctx, c, func(*http.Request) string { return "a" }, func(err error) {
			if ctx.Err() == nil {
				t.Error(err)
			}
		})
		check(t, err)
		_, err = store.create(ctx, "a", "", []byte("x"), time.Now().Add(time.Hour))
		check(t, err)
		remove := sync.OnceFunc(func() {
			check(t, store.remove(ctx, "a"))
			time.Sleep(time.Second) // until Watch has read the event
		})
		const tabs = 8
		texts := make(chan string, tabs)
		for i := range tabs {
			go func() {
				w := lateWriter{httptest.NewRecorder(), func() {}}
				if i == tabs-1 {
					time.Sleep(time.Second) // until the others wait
					w.before = remove
				}
				ends.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				texts <- w.Body.String()
			}()
		}
		for range tabs {
			select {
			case text := <-texts:
				if !strings.Contains(text, "data: logout") {
					t.Errorf("the browser hears %q", text)
				}
			case <-time.After(time.Minute):
				t.Fatal("a request hangs")
			}
		}
	})
}

// TestRenewToken: of a login with a new token and a logout in another tab, the logout wins.
func TestRenewToken(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		a := scsApp(t, collection(t, s.Client(t)))
		cookie, err := a.run("", func(s shop) { s.put("ann") })
		check(t, err)
		renewed, err := a.run(cookie, shop.renew)
		check(t, err)
		if renewed == cookie {
			t.Error("the token is the same")
		}
		_, err = a.run(renewed, func(s shop) {
			_, err := a.run(renewed, shop.logout)
			check(t, err)
			s.renew()
		})
		if err != ErrEnded {
			t.Errorf("a renewed token after the logout: %v", err)
		}
	})
}

// TestSCS is what the stores of scs are tested for.
func TestSCS(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		store := &scsStore{&Store{Sessions: collection(t, s.Client(t))}, manager()}
		want := func(data string, found bool) {
			t.Helper()
			got, ok, err := store.Find("session_token")
			if string(got) != data || ok != found || err != nil {
				t.Fatalf("got %q, %v, %v, want %q, %v", got, ok, err, data, found)
			}
		}
		want("", false)
		check(t, store.Commit("session_token", []byte("encoded_data"), time.Now().Add(time.Minute)))
		want("encoded_data", true)
		check(t, store.Commit("session_token", []byte("new_encoded_data"), time.Now().Add(time.Minute)))
		want("new_encoded_data", true)
		check(t, store.Commit("session_token", []byte("encoded_data"), time.Now().Add(100*time.Millisecond)))
		want("encoded_data", true)
		time.Sleep(time.Second)
		want("", false)
		check(t, store.Commit("session_token", []byte("encoded_data"), time.Now().Add(time.Minute)))
		check(t, store.Delete("session_token"))
		want("", false)
		check(t, store.Delete("session_token"))
	})
}
