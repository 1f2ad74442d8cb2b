package cosmos

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// Options configure a gateway.
type Options struct {
	// Hosts are the host names, without a port, that the gateway accepts in a Host header
	// besides the loopback names.
	Hosts []string
	// Key is the account key, in base64; empty for WellKnownKey.
	Key string
	// Connect returns a client of a database, and a function that closes it.
	Connect func(database string) (*client.Client, func(), error)
	// Databases returns the names of the databases that are served.
	Databases func(context.Context) ([]string, error)
	// Test lets requests open and drop databases and move their clocks, as lapse test does.
	Test bool
}

// Limits of a gateway.
const (
	maxRequests = 64              // at once
	maxWait     = 2 * time.Second // for a place among them
	maxBody     = 2 << 20         // bytes of an item or a batch
	maxQuery    = 256 << 10
	maxClients  = 256 // databases with a connection
)

// Gateway is the handler of the protocol. Work is bounded in three ways: requests at once
// by slots, bytes of a body by readBody, databases with a connection by the cache. A
// request waits for a slot instead of being refused at once, since SDKs start hundreds and
// give up after a few refusals.
type Gateway struct {
	options   Options
	key       []byte
	wellKnown bool
	slots     chan struct{} // semaphore

	opening    sync.Mutex
	databases  *lru.Cache[string, *database]
	throughput *lru.Cache[string, *offer] // of databases, by resource id
}

// New returns a gateway. Close closes its connections. It opens no connection: the first
// request to a database does.
func New(o Options) (*Gateway, error) {
	g := &Gateway{options: o, wellKnown: o.Key == "", slots: make(chan struct{}, maxRequests)}
	if !g.wellKnown {
		if err := CheckKey(o.Key); err != nil {
			return nil, err
		}
	}
	g.key, _ = base64.StdEncoding.DecodeString(cmp.Or(o.Key, WellKnownKey))
	g.databases, _ = lru.NewWithEvict(maxClients, func(_ string, db *database) { db.close() }) // the size is legal
	g.throughput, _ = lru.New[string, *offer](maxClients)
	return g, nil
}

// minKey is the least length of an account key, in bytes.
const minKey = 16

// CheckKey returns an error for what is no account key of the gateway's own, such as the
// well-known one.
func CheckKey(key string) error {
	text, err := base64.StdEncoding.DecodeString(key)
	switch {
	case err != nil || len(text) < minKey:
		return fmt.Errorf("the account key is not base64 of at least %d bytes: make one with `openssl rand -base64 64`", minKey)
	case base64.StdEncoding.EncodeToString(text) == WellKnownKey:
		return errors.New("this is the well-known key of the emulators, which everyone has: make another one with `openssl rand -base64 64`")
	}
	return nil
}

// Close closes the connections to the databases.
func (g *Gateway) Close() { g.databases.Purge() }

// exchange is one request. It has the methods of its parts: x is the context of all calls
// that it makes.
type exchange struct {
	*Gateway
	context.Context
	*http.Request
	path []string // decoded segments
	body []byte
	db   *database
	fit  int // documents that a reply had room for, 0 before any was too large; see contents
}

// reply is the answer to a request. Its body is JSON; nil for none.
type reply struct {
	status int
	body   []byte
	etag   string // without quotes
	seq    uint64 // of the state that answered; 0 if it is not about data
	about  string // name path of the parent
	header map[string]string
}

// ServeHTTP answers a request. A reply that comes with an error keeps what else it has:
// SDKs read Lsn and session token of errors, too.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, err := g.answer(r)
	if err != nil {
		f := asFault(err)
		if out == nil {
			out = &reply{}
		}
		out.status, out.body, out.etag = f.status, f.body(), ""
		if f.substatus != 0 {
			w.Header().Set("X-Ms-Substatus", strconv.Itoa(f.substatus))
		}
		if f.status == http.StatusTooManyRequests {
			w.Header().Set("X-Ms-Retry-After-Ms", "100")
		}
	}
	out.write(w, r)
}

// maxHeaders is about as many headers as a reply has.
const maxHeaders = 16

// write sends the reply. Names of headers are in canonical form.
func (out *reply) write(w http.ResponseWriter, r *http.Request) {
	header, values := w.Header(), make([]string, 0, maxHeaders)
	set := func(name, value string) { // Set would allocate for each
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set("X-Content-Type-Options", "nosniff")
	set("X-Ms-Activity-Id", cmp.Or(r.Header.Get("X-Ms-Activity-Id"), "00000000-0000-0000-0000-000000000000"))
	set("X-Ms-Request-Charge", "1")
	if out.etag != "" {
		set("Etag", `"`+out.etag+`"`)
	}
	if out.seq > 0 {
		lsn := strconv.FormatUint(out.seq, 10)
		set("Lsn", lsn)
		set("X-Ms-Session-Token", "0:-1#"+lsn)
	}
	if out.about != "" {
		set("X-Ms-Alt-Content-Path", out.about)
	}
	for name, value := range out.header {
		set(name, value)
	}
	if out.body == nil {
		w.WriteHeader(out.status)
		return
	}
	set("Content-Type", "application/json")
	set("Content-Length", strconv.Itoa(len(out.body)))
	w.WriteHeader(out.status)
	_, _ = w.Write(out.body) // or the client is gone
}

// answer checks a request, reads its body and routes it. The order matters: a request that
// is not admitted or signed costs neither a slot nor its body.
func (g *Gateway) answer(r *http.Request) (*reply, error) {
	if err := g.admits(r); err != nil {
		return nil, err
	}
	path, err := segments(r.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	isClock := len(path) == 2 && path[0] == "_lapse" && path[1] == "clock"
	if !isClock {
		if err := g.authorize(r, path); err != nil {
			return nil, err
		}
	}
	// Programs have hundreds under way at once, and SDKs give up after few tries.
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-time.After(maxWait):
		return nil, faultf(http.StatusTooManyRequests, "%d requests are under way: try again", maxRequests)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	x := &exchange{Gateway: g, Context: r.Context(), Request: r, path: path}
	if x.body, err = readBody(r); err != nil {
		return nil, err
	}
	if isClock {
		return x.clock()
	}
	return x.route()
}

// segments splits and decodes a path. Segments are split before they are decoded: an id
// may have a slash in percent code.
func segments(escaped string) ([]string, error) {
	escaped = strings.Trim(escaped, "/")
	if escaped == "" {
		return nil, nil
	}
	path := strings.Split(escaped, "/")
	for i, segment := range path {
		decoded, err := pathUnescape(segment)
		if err != nil || decoded == "" {
			return nil, badRequest("the path has the segment %.80q, which is empty or not UTF-8 in percent code", segment)
		}
		path[i] = decoded
	}
	return path, nil
}

// readBody reads at most maxBody bytes, of a query maxQuery.
func readBody(r *http.Request) ([]byte, error) {
	limit := int64(maxBody)
	if isQuery(r) {
		limit = maxQuery
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, badRequest("the body ended early: %v", err)
	}
	if int64(len(body)) > limit {
		return nil, faultf(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", limit)
	}
	return body, nil
}

// sessionSeq returns the sequence in a session token such as 0:-1#5, 0 without one. A
// token has more parts with several regions; here it is the range 0, a version and the
// sequence.
func (x *exchange) sessionSeq() uint64 {
	token, _, _ := strings.Cut(x.Header.Get("X-Ms-Session-Token"), ",")
	_, token, _ = strings.Cut(token, "#")
	text, _, _ := strings.Cut(token, "#")
	seq, _ := strconv.ParseUint(text, 10, 64)
	return seq
}

// do sends a request to the database of x. A read waits for the state of the session token;
// writes are answered by the writer, who has it. With an error the reply may be nil, or
// have the sequence of the state that refused.
func (x *exchange) do(op, collection, id string, body []byte, opts ...client.RequestOption) (*client.Reply, error) {
	opts = append(opts, client.TraceOf(x.Header))
	seq := x.sessionSeq()
	waits := seq > 0 && schema.OperationOf(op).Standby
	if waits {
		opts = append(opts, client.MinSeq(seq))
	}
	answer, err := x.db.client.Do(x, op, collection, id, body, opts...)
	if answer != nil {
		x.db.see(answer.Seq)
	}
	switch {
	case errors.Is(err, client.ErrTimeout) && waits && answer != nil:
		return nil, &fault{status: http.StatusNotFound, substatus: sessionNotReached, message: "the state of the session token is not here yet: try again"}
	case errors.Is(err, client.ErrCollectionNotFound):
		x.db.evict(collection)
		return nil, err
	case errors.Is(err, client.ErrUnavailable):
		return answer, x.explain(err)
	}
	return answer, err
}

// explain returns a 404 for a database that is not there. lapse answers requests to an
// unknown database as unavailable, at which SDKs would try again. A 404 ends that.
func (x *exchange) explain(err error) error {
	names, listErr := x.options.Databases(x)
	if listErr != nil || slices.Contains(names, x.db.name) {
		return err
	}
	f := notFound("database %s does not exist", x.db.name)
	if len(x.path) > 2 {
		f.substatus = noContainer
	}
	return f
}

// preferMinimal reports whether a write is answered without content.
func (x *exchange) preferMinimal() bool {
	return strings.EqualFold(x.Header.Get("Prefer"), "return=minimal")
}

// is reports whether a header says true, in any case.
func is(r *http.Request, header string) bool {
	return strings.EqualFold(r.Header.Get(header), "true")
}

// isQuery reports whether a POST is a query.
func isQuery(r *http.Request) bool {
	return is(r, "X-Ms-Documentdb-Query") || is(r, "X-Ms-Documentdb-Isquery") || is(r, "X-Ms-Cosmos-Is-Query-Plan-Request") ||
		strings.HasPrefix(r.Header.Get("Content-Type"), "application/query+json")
}

// etagOf returns the etag of a header.
func etagOf(r *http.Request, header string) string { return etagText(r.Header.Get(header)) }

// etagText returns an etag without the quotes with which some SDKs send it.
func etagText(text string) string { return strings.Trim(text, `"`) }

// ifMatch returns the option for the header If-Match.
func (x *exchange) ifMatch() []client.RequestOption {
	if etag := etagOf(x.Request, "If-Match"); etag != "" && etag != "*" {
		return []client.RequestOption{client.IfMatch(etag)}
	}
	return nil
}
