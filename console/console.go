package console

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/webserver"
)

// Options configure a console.
type Options struct {
	// Hosts are the host names, without a port, that the console accepts in a Host
	// header, besides the loopback names and the address that received the connection.
	Hosts []string
	// Token is the token that API requests must present as `Authorization: Bearer`; empty
	// for none. Set one wherever other users than that of the machine can connect.
	Token string
	// Write permits changes.
	Write bool
}

// Limits of a console.
const (
	maxFeeds    = 8  // each may have a client pull of 16 MiB
	maxRequests = 16 // requests to the database at once
	maxBody     = 3 << 20
	maxQuery    = 8 << 10 // bytes of a URL

	requestTimeout = 10 * time.Second
	importTimeout  = 25 * time.Second // less than the server has for a reply
	writeTimeout   = 20 * time.Second
	heartbeat      = 15 * time.Second
)

// Handler serves a console. Requests pass three gates: the name of the host (accepts), the
// token and the page (admits), and the permission to change (mayChange). The pages
// themselves need only the first: they hold no data.
//
// What is shared by requests has locks of its own: the cached answers and the samples.
type Handler struct {
	client  *client.Client
	options Options
	token   [sha256.Size]byte

	feeds, requests chan struct{} // semaphores

	// writeTimeout bounds each write to the reader of a feed. A slower reader is
	// disconnected and can resume where it was.
	writeTimeout time.Duration

	processes cached[[]client.Process]
	consumers cached[[]client.Consumer]
	bounds    cached[logBounds]
	outlook   cached[outlook]
	samples   samples

	now       func() int64    // Unix ms
	moves     bool            // a client moves the clock
	databases func() []string // all that have a console besides this one, at ../NAME/; nil for none
}

// New returns the handler of a console, which samples the status until ctx is done. The caller
// keeps ownership of the client.
func New(ctx context.Context, c *client.Client, options Options) *Handler {
	h := &Handler{
		client: c, options: options, token: sha256.Sum256([]byte(options.Token)),
		now: func() int64 { return time.Now().UnixMilli() }, databases: func() []string { return nil },
		feeds: make(chan struct{}, maxFeeds), requests: make(chan struct{}, maxRequests), writeTimeout: writeTimeout,
	}
	go h.watch(ctx)
	return h
}

// csp is the content security policy. A page can run only its own modules. Trusted types make
// every way to turn text into HTML an error.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP answers a request. It knows no prefix: relative URLs in the pages work below
// any.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.accepts(w, r) {
		return
	}
	if r.URL.Path == "" { // a prefix without its slash: relative URLs need the slash
		http.Redirect(w, r, strings.TrimSuffix(r.RequestURI, "?"+r.URL.RawQuery)+"/", http.StatusFound)
		return
	}
	op, isAPI := strings.CutPrefix(r.URL.Path, "/api/")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead && !(isAPI && r.Method == http.MethodPost):
		refuse(w, http.StatusMethodNotAllowed, "bad_request", "the console accepts GET, and POST below api/")
	case !isAPI:
		serveStatic(w, r)
	case h.admits(w, r):
		h.serveAPI(w, r, op)
	}
}

// accepts sets the headers of every reply, and reports whether the console answers to the
// host name and length of the URL. It refuses the request if not.
func (h *Handler) accepts(w http.ResponseWriter, r *http.Request) bool {
	header := w.Header()
	header.Set("Content-Security-Policy", csp)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if !h.answersTo(r) {
		refuse(w, http.StatusForbidden, "forbidden_host", "the console does not answer under the name of this Host header: allow it with --console-host")
		return false
	}
	if len(r.RequestURI) > maxQuery {
		refuse(w, http.StatusRequestURITooLong, "too_large", "the URL is too long")
		return false
	}
	return true
}

// answersTo reports whether the Host header is one of the console's own names. With DNS
// rebinding, a page of another site has that site's name.
func (h *Handler) answersTo(r *http.Request) bool {
	host := webserver.Hostname(r.Host)
	switch host {
	case "localhost", "127.0.0.1", "::1":
		return true
	case "":
		return false
	}
	if slices.ContainsFunc(h.options.Hosts, func(own string) bool { return strings.EqualFold(own, host) }) {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.Equal(net.ParseIP(host))
}

// admits reports whether a request to the API presents the token, and refuses it if not. A
// POST must come from the console's own page: with its Origin and a header that another
// site cannot send.
func (h *Handler) admits(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method == http.MethodPost && !fromOwnPage(r), fromOtherSite(r):
		refuse(w, http.StatusForbidden, "forbidden_origin", "only the console's own page may send this: it needs an Origin that is this host, and the header Lapse-Console: 1")
	case h.options.Token != "" && !h.presentsToken(r):
		w.Header().Set("WWW-Authenticate", `Bearer realm="lapse console"`)
		refuse(w, http.StatusUnauthorized, "unauthorized", "this console needs its token, the content of the file that --console-token-file names")
	default:
		return true
	}
	return false
}

// fromOtherSite reports whether the browser says that the page belongs to another origin. Such
// a page could not read the reply, but could occupy feeds.
func fromOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}

// fromOwnPage reports whether a request was sent by a page of this console: a browser sets
// Origin, and no other site may set the header without asking.
func fromOwnPage(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	return r.Header.Get("Lapse-Console") == "1" && len(r.Header.Values("Origin")) == 1 &&
		(strings.EqualFold(origin, "http://"+r.Host) || strings.EqualFold(origin, "https://"+r.Host))
}

// presentsToken compares digests, in constant time whatever the length of what was sent.
func (h *Handler) presentsToken(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(token))
	return ok && subtle.ConstantTimeCompare(sum[:], h.token[:]) == 1
}
