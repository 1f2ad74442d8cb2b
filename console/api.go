package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// serveAPI answers a request below /api/. Some operations are the console's own; the rest
// is passed to the database as it is, so that the pages can use all of the API.
func (h *Handler) serveAPI(w http.ResponseWriter, r *http.Request, op string) {
	w.Header().Set("Cache-Control", "no-store")
	own := map[string]func(http.ResponseWriter){"console": h.describe, "processes": h.listProcesses, "consumers": h.listConsumers, "log": h.describeLog, "samples": h.listSamples, "outlook": h.forecastAll}[op]
	switch {
	case op == "feed":
		h.feed(w, r)
	case op == "import":
		h.importLines(w, r)
	case op == "advance" && h.moves:
		h.advance(w, r)
	case own == nil:
		h.do(w, r, op)
	default:
		if _, err := parameters(r); err != nil {
			refuseError(w, err)
			return
		}
		own(w)
	}
}

// parameters returns the parameters of a request. It takes those of names, once each unless
// the name ends with "...". It refuses all others, and a query that it cannot parse: a reply
// without them would be one to another request.
func parameters(r *http.Request, names ...string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, client.ErrBadRequest.With("the query of the URL cannot be parsed: %v", err)
	}
	for name, values := range query {
		switch {
		case slices.Contains(names, name+"..."):
		case !slices.Contains(names, name):
			return nil, client.ErrBadRequest.With("unknown parameter %.40q", name)
		case len(values) > 1:
			return nil, client.ErrBadRequest.With("the parameter %s is there %d times: give it once", name, len(values))
		}
	}
	return query, nil
}

// namesOf returns the parameters of an operation of the database.
func namesOf(o schema.OperationInfo) []string {
	if o.Name == "query" {
		return []string{"collection", "bodies"}
	}
	return map[schema.Tail][]string{schema.CollectionTail: {"collection"}, schema.DocumentTail: {"collection", "id"}}[o.Tail]
}

// do sends one request to the database and returns its reply: the code as the HTTP
// status, the body unchanged. It passes on mutations, batches, and reads that any process answers,
// as they are in schema/asyncapi.yaml: /api/document.get?collection=orders&id=a. It checks
// whether the console may change something before it reads the body, and waits for its
// turn before it takes memory for it.
func (h *Handler) do(w http.ResponseWriter, r *http.Request, op string) {
	o := schema.OperationOf(op)
	isWrite := o.Mutates() || op == "batch" // also one of reads
	switch {
	case !isWrite && !o.Standby:
		refuse(w, http.StatusNotFound, "not_found", "the console has no operation "+strconv.Quote(op))
		return
	case isWrite && !h.mayChange(w, r):
		return
	}
	query, err := parameters(r, namesOf(o)...)
	if err != nil {
		refuseError(w, err)
		return
	}
	opts, err := passOn(r.Header)
	longest, err2 := bodies(query)
	if err = errors.Join(err, err2); err != nil {
		refuseError(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	body, done := h.body(ctx, w, r)
	if done == nil {
		return
	}
	defer done()
	reply, err := h.client.Do(ctx, op, query.Get("collection"), query.Get("id"), body, opts...)
	if reply == nil {
		refuseError(w, err)
		return
	}
	if longest >= 0 && reply.Status == http.StatusOK {
		reply.Body = cutDocuments(reply.Body, longest)
	}
	header := w.Header()
	header.Set(schema.HeaderSeq, strconv.FormatUint(reply.Seq, 10))
	setLifetime(header, reply.Lifetime)
	if len(reply.Body) > 0 {
		header.Set("Content-Type", "application/json")
	}
	w.WriteHeader(reply.Status)
	if reply.Status != http.StatusNoContent {
		_, _ = w.Write(reply.Body)
	}
}

// mayChange reports whether a request may change something. It refuses the request if not.
func (h *Handler) mayChange(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "bad_request", "send a change as POST")
	case !h.options.Write:
		refuse(w, http.StatusForbidden, "read_only", "this console is read-only: start lapse console with --write, or lapse serve with --console-token-file, to change anything")
	default:
		return true
	}
	return false
}

// body waits for its turn and returns the body of a request, and a function that ends the
// turn, which is nil if the request is refused. A turn is one of maxRequests: with a body
// of maxBody each they bound the memory of the console.
func (h *Handler) body(ctx context.Context, w http.ResponseWriter, r *http.Request) (body []byte, done func()) {
	if !take(ctx, h.requests) {
		refuse(w, http.StatusTooManyRequests, "overloaded", "the console has too many requests under way: try again")
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		return body, func() { <-h.requests }
	}
	<-h.requests
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		refuse(w, http.StatusRequestEntityTooLarge, "too_large", "the request exceeds "+strconv.Itoa(maxBody)+" bytes")
	} else {
		refuse(w, http.StatusBadRequest, "bad_request", "the body of the request cannot be read: send it again")
	}
	return nil, nil
}

// setLifetime sets the headers of a reply about one live document. The reason of a hold is
// percent-encoded, since an HTTP header is ASCII only.
func setLifetime(header http.Header, l client.Lifetime) {
	if l.Rule != client.NoRule {
		header.Set(schema.HeaderDeadline, strconv.FormatInt(l.Deadline.Unix(), 10))
		header.Set(schema.HeaderRule, l.Rule.String())
	}
	if l.Held {
		header.Set(schema.HeaderHold, url.PathEscape(l.Reason))
	}
}

// passOn returns the headers of a request that the console forwards to the database.
func passOn(header http.Header) (opts []client.RequestOption, _ error) {
	opts = append(opts, client.TraceOf(header))
	if etag := header.Get("If-Match"); etag != "" {
		opts = append(opts, client.IfMatch(etag))
	}
	if id := header.Get("Nats-Msg-Id"); id != "" {
		opts = append(opts, client.MsgID(id))
	}
	if text := header.Get("Lapse-Min-Seq"); text != "" {
		seq, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, client.ErrBadRequest.With("Lapse-Min-Seq %.40q: use a sequence of the log", text)
		}
		opts = append(opts, client.MinSeq(seq))
	}
	return opts, nil
}

// reads are the operations that the console offers without Write.
var reads = schema.OperationNames(func(o schema.OperationInfo) bool { return o.Standby })

// describe replies with the database, the write permission and the time.
func (h *Handler) describe(w http.ResponseWriter) {
	reply(w, http.StatusOK, struct {
		Database string `json:"database"`
		Write    bool   `json:"write"`
		Now      int64  `json:"now"`            // ms since 1970, for countdowns by the clock of the server
		Test     bool   `json:"test,omitempty"` // a client moves the clock
		// Reads are the operations that change nothing.
		Reads []string `json:"reads"`
		// Databases have a console each, at ../NAME/; none if there is only this one.
		Databases []string `json:"databases,omitempty"`
	}{h.client.Database(), h.options.Write, h.now(), h.moves, reads, h.databases()})
}

// listProcesses lists the processes that serve the database.
func (h *Handler) listProcesses(w http.ResponseWriter) {
	list, err := h.processes.get(2*time.Second, h.client.Processes)
	if err != nil {
		refuseError(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"processes": list})
}

// listConsumers lists the consumers of the log.
func (h *Handler) listConsumers(w http.ResponseWriter) {
	list, err := h.consumers.get(5*time.Second, h.client.Consumers)
	if err != nil {
		refuseError(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"consumers": append([]client.Consumer{}, list...)})
}

// logBounds are the bounds of the log.
type logBounds struct {
	First uint64 `json:"first"` // above Last if the log is empty
	Last  uint64 `json:"last"`
	Time  int64  `json:"time,omitempty"` // log time of the first event, ms
}

// describeLog replies with the bounds of the log. The time of its first event costs a
// read, so it is cached for longer than others.
func (h *Handler) describeLog(w http.ResponseWriter) {
	bounds, err := h.bounds.get(15*time.Second, func(ctx context.Context) (b logBounds, err error) {
		if b.First, b.Last, err = h.client.LogBounds(ctx); err != nil || b.First > b.Last {
			return b, err
		}
		for e, err := range h.client.Changes(ctx, client.FromSeq(b.First), client.UntilNow()) {
			if err != nil {
				return b, err
			}
			b.Time = e.Time.UnixMilli()
			break
		}
		return b, nil
	})
	if err != nil {
		refuseError(w, err)
		return
	}
	reply(w, http.StatusOK, bounds)
}

// cached keeps an answer that is expensive to load, so that the load rate does not depend
// on the number of open pages. The lock is held while it loads: requests that come
// meanwhile wait for that one load.
type cached[T any] struct {
	mu    sync.Mutex
	until time.Time
	value T
	err   error
}

func (c *cached[T]) get(lasts time.Duration, load func(context.Context) (T, error)) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.until) {
		// Not the context of a request: other requests wait for the answer, too.
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout/2)
		defer cancel()
		c.value, c.err = load(ctx)
		c.until = time.Now().Add(lasts)
	}
	return c.value, c.err
}

// expire lets the next get load the answer again.
func (c *cached[T]) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Time{}
}

// take takes a slot of a semaphore. It reports false if ctx is done first.
func take(ctx context.Context, semaphore chan struct{}) bool {
	select {
	case semaphore <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func reply(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

// refuse replies with an error in the format of the database's own errors.
func refuse(w http.ResponseWriter, code int, name, message string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := schema.Error{Code: code, Name: name, Message: message}
	_, _ = w.Write(e.AppendJSON(nil))
}

// refuseError replies with the code of an error; one without a code is a 503.
func refuseError(w http.ResponseWriter, err error) {
	coded := schema.AsError(err)
	if errors.Is(err, context.DeadlineExceeded) {
		coded = client.ErrTimeout.With("the database did not answer in time: try again")
	}
	refuse(w, coded.Code, coded.Name, coded.Error())
}
