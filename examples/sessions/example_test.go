package sessions_test

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/gorilla/securecookie"
	gorilla "github.com/gorilla/sessions"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/examples/sessions"
)

func ExampleStore_SCS() {
	ctx, app := context.Background(), http.NewServeMux()
	c, err := client.Connect("nats://127.0.0.1:4222", client.WithReadYourWrites())
	if err != nil {
		log.Fatal(err)
	}
	coll, err := c.OpenCollection(ctx, "sessions", client.TTLPerDocument(), client.IncludePaths("/user"))
	if err != nil {
		log.Fatal(err)
	}
	store := &sessions.Store{Sessions: coll, UserKey: "user"} // manager.Put(ctx, "user", name) at the login

	manager := scs.New()
	manager.IdleTimeout, manager.Lifetime = 30*time.Minute, 8*time.Hour
	handler := store.SCS(manager, app) // in place of manager.LoadAndSave

	// "Your session has ended", for the pages of the browser.
	ends, err := store.Watch(ctx, c, func(r *http.Request) string {
		cookie, err := r.Cookie(manager.Cookie.Name)
		if err != nil {
			return ""
		}
		return cookie.Value
	}, func(err error) { log.Fatal(err) })
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/ended", ends)

	// All sessions of the user but this one.
	app.HandleFunc("POST /logout-others", func(w http.ResponseWriter, r *http.Request) {
		_, err := store.EndAll(r.Context(), manager.GetString(r.Context(), "user"), manager.Token(r.Context()))
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	})
	http.Handle("/", handler)
}

func ExampleGorilla() {
	var coll *client.Collection
	var key []byte

	store := &sessions.Gorilla{
		Store:   &sessions.Store{Sessions: coll, Idle: 30 * time.Minute, Absolute: 8 * time.Hour},
		Codecs:  securecookie.CodecsFromPairs(key),
		Options: gorilla.Options{Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode},
	}

	var _ gorilla.Store = store
}
