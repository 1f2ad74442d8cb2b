package console

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/lapsedb/lapse/client"
)

// several serves the consoles of several databases. The databases are those of the start:
// Moved is for databases that come and go.
type several struct {
	names []string
	of    map[string]*Handler
}

// Several returns the handler of the consoles of several databases, each at /NAME/; / leads
// to the first. They sample the status until ctx is done. The caller keeps ownership of the
// clients, of which there is at least one.
func Several(ctx context.Context, clients []*client.Client, options Options) http.Handler {
	s := several{of: make(map[string]*Handler)}
	for _, c := range clients {
		s.names = append(s.names, c.Database())
		s.of[c.Database()] = New(ctx, c, options)
	}
	for _, h := range s.of {
		h.databases = func() []string { return s.names }
	}
	return s
}

// ServeHTTP passes a request to the console that its path names; / leads to the first one.
func (s several) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if page, there := s.of[name]; there {
		http.StripPrefix("/"+name, page).ServeHTTP(w, r)
		return
	}
	first := s.of[s.names[0]]
	switch {
	case !first.accepts(w, r):
	case name == "": // relative, for a proxy that strips a prefix
		w.Header().Set("Location", s.names[0]+"/")
		w.WriteHeader(http.StatusFound)
	case strings.HasPrefix(rest, "api/"):
		refuse(w, http.StatusNotFound, "not_found", fmt.Sprintf("no database %.40q here%s", name, s.list()))
	default:
		s.notFound(w, r, name)
	}
}

// list names the databases, unless that takes a token.
func (s several) list() string {
	if s.of[s.names[0]].options.Token != "" {
		return ""
	}
	return ": use one of " + strings.Join(s.names, ", ")
}

// notFound is the page of a database that is not served. It links the others only where no
// token is needed: names are not for everybody.
func (s several) notFound(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	up := strings.Repeat("../", max(strings.Count(r.URL.Path, "/")-1, 0)) // "*" has none
	var items strings.Builder
	for _, other := range s.names {
		if s.list() != "" {
			fmt.Fprintf(&items, `<li><a href="%s%s/">%[2]s</a></li>`, up, other)
		}
	}
	_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark"><meta name="viewport" content="width=device-width"><title>lapse: no such database</title>`+
		`<main><h1>No database “%s” here</h1><ul>%s</ul></main></html>`, html.EscapeString(name), &items)
}
