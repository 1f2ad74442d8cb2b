package sessions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/lapsetest/bubble"
)

// ofUsers: a user's sessions are listed and ended, also while requests use them, and nobody
// else's.
func ofUsers(t *testing.T, a *app) {
	login := func(user string) string {
		t.Helper()
		time.Sleep(time.Second)
		cookie, err := a.run("", func(s shop) { s.put(user) })
		check(t, err)
		return cookie
	}
	user := func(cookie string) (user string) {
		t.Helper()
		_, err := a.run(cookie, func(s shop) { user = s.user() })
		check(t, err)
		return user
	}
	var tabs []string
	for range 10 {
		tabs = append(tabs, login("ann"))
	}
	bob := login("bob")
	began := time.Now()
	time.Sleep(idle / 2)
	user(tabs[3]) // renews it
	list, err := a.store.List(t.Context(), "ann")
	check(t, err)
	if len(list) != len(tabs) || !list[0].Used.After(began) || list[1].Used.After(began) || list[0].End.Sub(began) > absolute || list[0].End.Sub(began) < absolute-time.Minute {
		t.Errorf("the list is %v", list)
	}
	if n, err := a.store.EndAll(t.Context(), "ann", list[0].ID); n != len(tabs)-1 || err != nil {
		t.Errorf("%d have ended, %v", n, err)
	}
	for i, tab := range append(tabs, bob) {
		if got, want := user(tab), map[int]string{3: "ann", len(tabs): "bob"}[i]; got != want {
			t.Errorf("session %d has the user %q, want %q", i, got, want)
		}
	}

	// A request that saves its session, or renews it, brings back none that was ended.
	for i := range tabs {
		tabs[i] = login("ann")
	}
	var all sync.WaitGroup
	for i, tab := range tabs {
		all.Go(func() {
			for live := true; live; {
				_, err := a.run(tab, func(s shop) {
					time.Sleep(time.Duration(i+1) * time.Millisecond)
					if live = s.user() != ""; live {
						s.put("ann")
					}
				})
				if err != nil && err != ErrEnded {
					t.Error(err)
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if n, err := a.store.EndAll(t.Context(), "ann"); n != len(tabs)+1 || err != nil {
		t.Errorf("%d have ended, %v", n, err)
	}
	all.Wait()
	for name, want := range map[string]int{"ann": 0, "bob": 1, "": 0, "nobody": 0} {
		if list, err := a.store.List(t.Context(), name); len(list) != want || err != nil {
			t.Errorf("%q has %d sessions, %v", name, len(list), err)
		}
	}
}

// TestUsers: what List and EndAll make of many sessions, of documents that are none, of a
// held one, and of sessions that were stored before UserKey was set.
func TestUsers(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		ctx, coll := t.Context(), collection(t, s.Client(t))
		a := scsApp(t, coll)
		a.store.UserKey = ""
		cookie, err := a.run("", func(s shop) { s.put("ann") })
		check(t, err)
		a.store.UserKey = "user"
		if list, err := a.store.List(ctx, "ann"); len(list) != 0 || err != nil {
			t.Errorf("before: %v, %v", list, err)
		}
		_, err = a.run(cookie, nothing)
		check(t, err)
		if list, err := a.store.List(ctx, "ann"); len(list) != 1 || err != nil {
			t.Errorf("after a request: %v, %v", list, err)
		}

		const many = client.MaxPageSize + 200
		b := coll.Batch()
		for i := range many {
			if b.Upsert(fmt.Sprint("many", i), document{User: userOf(42)}); b.Len() == client.MaxBatch || i == many-1 {
				results, err := b.Run(ctx)
				check(t, errors.Join(err, results.Err()))
				b = coll.Batch()
			}
		}
		check(t, client.Hold(ctx, coll, "many7", "case 4711"))
		_, err = client.Upsert(ctx, coll, "foreign", map[string]any{"user": "42", "data": 5})
		check(t, err)
		list, err := a.store.List(ctx, "42")
		if len(list) != many || err != nil || slices.ContainsFunc(list, func(i Info) bool { return !strings.HasPrefix(i.ID, "many") }) {
			t.Errorf("%d sessions, %v", len(list), err)
		}
		if n, err := a.store.EndAll(ctx, "42"); n != many || !errors.Is(err, client.ErrDocumentHeld) {
			t.Errorf("%d have ended, %v", n, err)
		}
		check(t, client.Release(ctx, coll, "many7"))
		if n, err := a.store.EndAll(ctx, "42"); n != 1 || err != nil {
			t.Errorf("%d have ended, %v", n, err)
		}
		s.Stop(t)
		if _, err := a.store.EndAll(ctx, "ann"); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("without lapse: %v", err)
		}
		s.Start(t)
		if n, err := a.store.EndAll(ctx, "ann"); n != 1 || err != nil {
			t.Errorf("after a restart: %d have ended, %v", n, err)
		}
	})
}
