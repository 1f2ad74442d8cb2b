package console

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// flushEvery is the maximum delay of an event: events within it are sent together.
const flushEvery = 50 * time.Millisecond

// feed sends the change feed as server-sent events: each has an event of the log as JSON,
// and its sequence as id. A reader that reconnects with Last-Event-ID continues after it,
// and never before from.
//
// Parameters: collection and type, which repeat; id; from (a sequence, a time in RFC
// 3339, or nothing for now); and bodies, the maximum body size: a longer body is replaced
// by its size in bodyBytes. Between what was in the log when the feed began and what came
// later it sends the event "now". What a reader sees, for a feed from sequence 5 on:
//
//	id: 4                                        where to go on if nothing comes
//
//	id: 5
//	data: {"seq":5,"type":"DocumentCreated",…}
//
//	id: 9
//	event: now
//	data:
//
// A goroutine reads the log and hands over one event at a time. A slow reader thus slows
// down the pull of its own consumer and nothing else; after writeTimeout without progress
// it is disconnected.
func (h *Handler) feed(w http.ResponseWriter, r *http.Request) {
	select {
	case h.feeds <- struct{}{}:
		defer func() { <-h.feeds }()
	default:
		refuse(w, http.StatusTooManyRequests, "overloaded", fmt.Sprintf("the console serves at most %d feeds at once: close one", maxFeeds))
		return
	}
	f, opts, err := newFeed(r)
	if err != nil {
		refuseError(w, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	begin, end, err := h.begin(ctx, f)
	if err != nil {
		refuseError(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not buffer events
	f.out = bufio.NewWriterSize(w, 64<<10)
	f.flusher = http.NewResponseController(w)
	f.writeTimeout = h.writeTimeout

	events := make(chan item) // unbuffered: a slow reader slows down the reads from JetStream
	go func() {
		defer close(events)
		h.read(ctx, append(opts, begin), end, events)
	}()
	f.run(ctx, events)
	cancel()
	for range events { // wait until the reader of the log has ended
	}
}

// item is an event or error of the feed, or says that the feed has all up to now.
type item struct {
	event *client.Event
	err   error
	now   uint64
}

// begin returns where the feed begins, and the end of the log, which is the id of a feed
// from now before its first event. A position beyond the end is an error: events there
// would be of another log than those that the reader has.
func (h *Handler) begin(ctx context.Context, f *feed) (client.FeedOption, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, end, err := h.client.LogBounds(ctx)
	if f.now {
		f.last = end
	}
	switch {
	case err == nil && f.last > end:
		err = client.ErrBadRequest.With("the feed is to go on after sequence %d, and the log ends at %d: the position is from another log, or from before a restore; begin anew, without Last-Event-ID and with from=%d at most", f.last, end, end+1)
	case !f.hasID():
		return client.FromTime(f.from), end, err
	}
	return client.FromSeq(f.last + 1), end, err
}

// read sends the events of a feed: those that are in the log, whose end is given, that this
// is all, and those to come. The two reads cannot miss an event: the second begins after
// the last sequence of the first.
func (h *Handler) read(ctx context.Context, opts []client.FeedOption, end uint64, events chan<- item) {
	send := func(next item) bool {
		select {
		case events <- next:
			return next.err == nil
		case <-ctx.Done():
			return false
		}
	}
	for e, err := range h.client.Changes(ctx, append(opts, client.UntilNow())...) {
		if !send(item{event: e, err: err}) {
			return
		}
		end = max(end, e.Seq)
	}
	if !send(item{now: end}) {
		return
	}
	for e, err := range h.client.Changes(ctx, append(opts, client.FromSeq(end+1))...) {
		if !send(item{event: e, err: err}) {
			return
		}
	}
}

// feed is one feed of one reader.
type feed struct {
	id     string    // document id; empty for all
	bodies int       // size of the longest body sent, -1 for no limit
	last   uint64    // sequence to resume after
	sent   uint64    // the last of these that the reader has
	now    bool      // whether it begins with the next event
	from   time.Time // log time before which it sends nothing; zero for none

	out          *bufio.Writer
	flusher      *http.ResponseController
	writeTimeout time.Duration
	buffer       []byte
}

// newFeed reads the parameters of a feed. A browser that reconnects sends the same URL
// with Last-Event-ID: the later of the two counts.
func newFeed(r *http.Request) (*feed, []client.FeedOption, error) {
	query, err := parameters(r, "collection...", "type...", "id", "from", "bodies")
	if err != nil {
		return nil, nil, err
	}
	f := &feed{id: query.Get("id")}
	if query.Has("id") {
		if _, err := schema.ParseDocumentID(f.id); err != nil {
			return nil, nil, err
		}
	}
	if f.bodies, err = bodies(query); err != nil {
		return nil, nil, err
	}
	opts, err := choice(query)
	if err != nil {
		return nil, nil, err
	}
	resumed := r.Header.Get("Last-Event-ID")
	if resumed != "" {
		if f.last, err = strconv.ParseUint(resumed, 10, 63); err != nil {
			return nil, nil, client.ErrBadRequest.With("Last-Event-ID %.40q: use a sequence of the log", resumed)
		}
	}
	from := query.Get("from")
	if from == "" {
		f.now = resumed == ""
		return f, opts, nil
	}
	if seq, err := strconv.ParseUint(from, 10, 63); err == nil {
		f.last = max(f.last, max(seq, 1)-1)
		return f, opts, nil
	}
	if f.from, err = schema.ParseTime(from); err != nil {
		return nil, nil, client.ErrBadRequest.With("from=%.40q: use a sequence of the log, or a time like 2015-05-17T10:05:03Z", from)
	}
	return f, opts, nil
}

// hasID reports whether there is a sequence to resume after: a feed from a time has none
// before its first event.
func (f *feed) hasID() bool { return f.last > 0 || f.from.IsZero() }

// choice returns the options for the collections and types in a URL query.
func choice(query url.Values) (opts []client.FeedOption, _ error) {
	for _, name := range query["collection"] {
		if _, err := schema.ParseCollectionName(name); err != nil {
			return nil, err
		}
		opts = append(opts, client.InCollection(name))
	}
	for _, name := range query["type"] {
		t := schema.ParseEventType(name)
		if t == schema.NoEvent || t.Internal() {
			return nil, client.ErrBadRequest.With("type=%.40q: use one of %s", name, strings.Join(schema.EventNames(), ", "))
		}
		opts = append(opts, client.OfType(t))
	}
	return opts, nil
}

// run sends events until they end, a write fails, or ctx is done. Events are flushed
// together after flushEvery, which costs one system call for many. A heartbeat shows the
// reader, and proxies between, that the feed lives.
func (f *feed) run(ctx context.Context, events <-chan item) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	flush := time.NewTimer(0) // flush at once: the reader shall see that it is connected
	defer flush.Stop()
	waiting := true // flush is armed
	f.progress()
	for {
		select {
		case <-ctx.Done():
			return
		case next, more := <-events:
			if !more {
				return
			}
			if next.err != nil {
				f.fail(next.err)
				return
			}
			if next.event == nil {
				f.last = next.now
				f.patience()
				_, _ = fmt.Fprintf(f.out, "id: %d\nevent: now\ndata:\n\n", f.last)
			} else if f.last = next.event.Seq; (f.id == "" || next.event.ID == f.id) && !next.event.Time.Before(f.from) && f.send(next.event) != nil {
				return
			}
			if !waiting {
				flush.Reset(flushEvery)
				waiting = true
			}
		case <-flush.C:
			waiting = false
			if f.last != f.sent {
				f.progress() // a search shows how far it is
			}
			if f.flush() != nil {
				return
			}
		case <-beat.C:
			f.progress()
			if f.flush() != nil {
				return
			}
		}
	}
}

// send writes an event, and blocks while the reader lags. A body that is left out is still
// counted, so that a page can offer to load it.
func (f *feed) send(e *client.Event) error {
	size := len(e.Body)
	if f.bodies >= 0 && size > f.bodies {
		short := *e.Schema()
		short.Body = nil
		f.buffer = short.AppendJSON(f.buffer[:0])
		f.buffer = fmt.Appendf(f.buffer[:len(f.buffer)-1], `,"bodyBytes":%d}`, size)
	} else {
		f.buffer = e.Schema().AppendJSON(f.buffer[:0])
	}
	f.patience()
	f.sent = e.Seq
	_, err := fmt.Fprintf(f.out, "id: %d\ndata: %s\n\n", e.Seq, f.buffer)
	if cap(f.buffer) > 1<<20 {
		f.buffer = nil
	}
	return err
}

// progress sends the sequence to resume after, which advances without matching events too;
// a comment if there is none.
func (f *feed) progress() {
	f.patience()
	if !f.hasID() {
		_, _ = f.out.WriteString(":\n\n")
		return
	}
	f.sent = f.last
	_, _ = fmt.Fprintf(f.out, "id: %d\n\n", f.last)
}

// fail sends an error as the event "fault", after which the page decides whether to
// connect again.
func (f *feed) fail(err error) {
	e := schema.AsError(err)
	f.patience()
	_, _ = fmt.Fprintf(f.out, "event: fault\ndata: %s\n\n", e.AppendJSON(nil))
	_ = f.flush()
}

func (f *feed) flush() error {
	f.patience()
	if err := f.out.Flush(); err != nil {
		return err
	}
	return f.flusher.Flush()
}

// patience extends the deadline of the next write by the write timeout.
func (f *feed) patience() { _ = f.flusher.SetWriteDeadline(time.Now().Add(f.writeTimeout)) }
