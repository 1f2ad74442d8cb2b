package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// read returns the events of a feed as "seq Type collection/id", up to limit events or
// the end of the feed.
func read(t *testing.T, c *client.Client, limit int, opts ...client.FeedOption) string {
	t.Helper()
	ctx := patient(t)
	var got []string
	for e, err := range c.Changes(ctx, opts...) {
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		got = append(got, fmt.Sprintf("%d %s %s/%s", e.Seq, e.Type, e.Collection, e.ID))
		if len(got) == limit {
			break
		}
	}
	return strings.Join(got, ", ")
}

func TestChanges(t *testing.T) { both(t, changes) }

func changes(t *testing.T, with ...client.Option) {
	s := newStandin(t).log()
	c := s.client(with...)
	if got := read(t, c, 0, client.FromStart(), client.UntilNow()); got != "" {
		t.Errorf("empty log: %s", got)
	}
	s.internal()
	s.created("orders", "a")
	s.created("carts", "a")
	s.internal()
	s.expired("orders", "a", `{"id":"a"}`)
	s.internal()

	const created, cart, expired = "2 DocumentCreated orders/a", "3 DocumentCreated carts/a", "5 DocumentExpired orders/a"
	for name, test := range map[string]struct {
		opts []client.FeedOption
		want []string
	}{
		"all":                       {[]client.FeedOption{client.FromStart()}, []string{created, cart, expired}},
		"collection":                {[]client.FeedOption{client.FromStart(), client.InCollection("orders")}, []string{created, expired}},
		"collections":               {[]client.FeedOption{client.FromStart(), client.InCollection("orders"), client.InCollection("carts"), client.InCollection("carts")}, []string{created, cart, expired}},
		"type":                      {[]client.FeedOption{client.FromStart(), client.OfType(client.DocumentExpired)}, []string{expired}},
		"types":                     {[]client.FeedOption{client.FromStart(), client.OfType(client.DocumentExpired, client.DocumentCreated), client.InCollection("orders")}, []string{created, expired}},
		"none":                      {[]client.FeedOption{client.FromStart(), client.InCollection("other")}, nil},
		"from sequence":             {[]client.FeedOption{client.FromSeq(3)}, []string{cart, expired}},
		"from after the end":        {[]client.FeedOption{client.FromSeq(7)}, nil},
		"until sequence":            {[]client.FeedOption{client.FromStart(), client.UntilSeq(3)}, []string{created, cart}},
		"until an internal":         {[]client.FeedOption{client.FromStart(), client.UntilSeq(4)}, []string{created, cart}},
		"until beyond":              {[]client.FeedOption{client.FromStart(), client.UntilSeq(4000)}, []string{created, cart, expired}},
		"until sequence and filter": {[]client.FeedOption{client.FromStart(), client.UntilSeq(4), client.InCollection("orders")}, []string{created}},
		"until time":                {[]client.FeedOption{client.FromStart(), client.UntilTime(time.Now().Add(-time.Hour))}, nil},
		"until sequence 0":          {[]client.FeedOption{client.FromStart(), client.UntilSeq(0)}, nil},
		"until time 0":              {[]client.FeedOption{client.FromStart(), client.UntilTime(time.UnixMilli(0))}, nil},
		"until the zero time":       {[]client.FeedOption{client.FromStart(), client.UntilTime(time.Time{})}, nil},
		"from sequence 0":           {[]client.FeedOption{client.FromSeq(0)}, []string{created, cart, expired}},
		"from time 0":               {[]client.FeedOption{client.FromTime(time.UnixMilli(0))}, []string{created, cart, expired}},
		"from the zero time":        {[]client.FeedOption{client.FromTime(time.Time{})}, []string{created, cart, expired}},
		"durable until sequence 0":  {[]client.FeedOption{client.FromStart(), client.UntilSeq(0), client.Durable("none")}, nil},
		"from time":                 {[]client.FeedOption{client.FromTime(time.Now().Add(-time.Hour))}, []string{created, cart, expired}},
		"from time to come":         {[]client.FeedOption{client.FromTime(time.Now().Add(time.Minute))}, nil},
		"now":                       {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := read(t, c, 0, append(test.opts, client.UntilNow())...), strings.Join(test.want, ", "); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	for _, until := range []client.FeedOption{client.UntilSeq(0), client.UntilTime(time.UnixMilli(0)), client.UntilTime(time.Time{})} {
		if got := read(t, c, 0, client.FromStart(), until); got != "" {
			t.Errorf("until 0, not now: %s", got)
		}
	}
	t.Run("until sequence, not now", func(t *testing.T) {
		if got := read(t, c, 0, client.FromStart(), client.UntilSeq(3)); got != created+", "+cart {
			t.Error(got)
		}
	})
}

// TestFromTimeOfLog: a reader from a time begins by the log's clock, which may be years from
// the machine's, as that of a log for tests: it gets the events since then and no message
// before.
func TestFromTimeOfLog(t *testing.T) { both(t, fromTimeOfLog) }

func fromTimeOfLog(t *testing.T, with ...client.Option) {
	t.Parallel()
	for name, start := range map[string]time.Time{"a year ahead": time.Now().AddDate(1, 0, 0), "26 years behind": time.Now().AddDate(-26, 0, 0)} {
		t.Run(name, func(t *testing.T) {
			s := newStandin(t).log()
			const before, after, hours = 3, 6, 9
			for i := range hours {
				s.happen(schema.Event{Type: schema.DocumentCreated, Collection: "orders", ID: schema.DocumentID(fmt.Sprint(i)), Time: start.Add(time.Duration(i) * time.Hour).UnixMilli(), Body: []byte("{}")})
				if i == before { // a foreign message has no log time, and is an error to a reader
					must(t)(s.js.Publish(t.Context(), "lapse.main.events.orders.Melted", nil))
				}
			}
			c := s.client(with...)
			since, now := client.FromTime(start.Add(after*time.Hour-time.Minute)), client.UntilNow()
			const want = "8 DocumentCreated orders/6, 9 DocumentCreated orders/7, 10 DocumentCreated orders/8"
			for name, opts := range map[string][]client.FeedOption{"now": {since, now}, "sequence": {since, client.UntilSeq(hours + 1)}, "durable": {since, now, client.Durable("d")}} {
				if got := read(t, c, 0, opts...); got != want {
					t.Errorf("%s: %s", name, got)
				}
			}
			if got := read(t, c, 0, client.FromTime(start.Add(hours*time.Hour)), now); got != "" {
				t.Errorf("after the end: %s", got)
			}
		})
	}
}

// TestBeyondEnd: a reader that is to begin after the next event fails with both sequences;
// a durable that exists has a position of its own.
func TestBeyondEnd(t *testing.T) { both(t, beyondEnd) }

func beyondEnd(t *testing.T, with ...client.Option) {
	s := newStandin(t).log()
	c := s.client(with...)
	for _, collection := range []string{"orders", "_"} {
		s.created(collection, "a")
	}
	durable, orders := client.Durable("d"), client.InCollection("orders")
	for name, opts := range map[string][]client.FeedOption{
		"feed": nil, "filter": {orders}, "up to now": {client.UntilNow()}, "up to a sequence": {client.UntilSeq(500)}, "durable": {durable, client.UntilNow()},
	} {
		opts = append(opts, client.FromSeq(4))
		last := errors.Join(slices.Collect(failures(c.Changes(t.Context(), opts...)))...)
		handle := make([]client.HandleOption, len(opts))
		for i, opt := range opts {
			handle[i] = opt
		}
		handled := c.Handle(t.Context(), func(context.Context, *client.Event) error { return nil }, handle...)
		for _, err := range []error{last, handled} {
			if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), `sequence 4 is beyond the end of the log of database "main", which is 2:`) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if got := read(t, c, 0, durable, client.FromStart(), client.UntilNow()); got != "1 DocumentCreated orders/a" {
		t.Error(got)
	}
	if got := read(t, c, 0, durable, client.FromSeq(4), client.UntilNow()); got != "" {
		t.Errorf("a durable that exists: %s", got)
	}
}

func TestChangesFromNow(t *testing.T) { both(t, changesFromNow) }

func changesFromNow(t *testing.T, with ...client.Option) {
	s := newStandin(t).log()
	s.created("orders", "before")
	ctx := patient(t)
	var writing sync.WaitGroup
	defer writing.Wait()
	stop := make(chan struct{})
	defer close(stop)
	writing.Go(func() { // keep writing: the feed omits events from before its start
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				s.created("orders", fmt.Sprint(i))
			}
		}
	})
	var got []string
	for e, err := range s.client(with...).Changes(ctx) {
		check(t, err)
		if got = append(got, e.ID); len(got) == 3 {
			break
		}
	}
	if got[0] == "before" || got[1] == got[0] {
		t.Error(got)
	}
}

func TestChangesSurviveReconnects(t *testing.T) { both(t, changesSurviveReconnects) }

func changesSurviveReconnects(t *testing.T, with ...client.Option) {
	t.Parallel()
	s := newStandin(t).log()
	s.created("orders", "a")
	nc := s.connect("app")
	c := s.over(nc, with...)
	for name, opts := range map[string][]client.FeedOption{"ordered": nil, "durable": {client.Durable("d"), client.AckWait(longAckWait)}} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		var got []string
		for e, err := range c.Changes(ctx, append(opts, client.FromStart())...) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got = append(got, e.ID); len(got) == 1 {
				check(t, nc.ForceReconnect())
				s.created("orders", "b")
			} else {
				break
			}
		}
		cancel()
		if strings.Join(got, " ") != "a b" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestChangesErrors(t *testing.T) {
	s := newStandin(t)
	c := s.client()
	one := func(opts ...client.FeedOption) (got error) {
		for e, err := range c.Changes(t.Context(), opts...) {
			if e != nil || got != nil {
				t.Errorf("%v, %v after %v", e, err, got)
			}
			got = err
		}
		return got
	}
	for name, opts := range map[string][]client.FeedOption{"now": nil, "start": {client.FromStart()}, "durable": {client.Durable("d")}} {
		if err := one(opts...); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s without a log: %v", name, err)
		}
	}
}

// TestReadEvent: a consumer of the program's own reads the events that Changes yields.
func TestReadEvent(t *testing.T) {
	s := newStandin(t).log()
	c := s.client()
	s.internal()
	s.created("orders", "a/ü")
	s.expired("orders", "a/ü", `{"id":"a/ü"}`)
	line := func(e *client.Event) string {
		text, err := e.MarshalJSON()
		check(t, err)
		return string(text)
	}
	want := []string{"internal"}
	for e, err := range c.Changes(t.Context(), client.FromStart(), client.UntilNow()) {
		check(t, err)
		want = append(want, line(e))
	}
	js, err := jetstream.New(c.Conn())
	check(t, err)
	consumer, err := js.CreateConsumer(t.Context(), "LAPSE_main", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	check(t, err)
	next := func() (*client.Event, error) {
		m, err := consumer.Next()
		check(t, err)
		return client.ReadEvent(m)
	}
	for _, want := range want {
		got := "internal"
		e, err := next()
		if e != nil {
			got = line(e)
		}
		if err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	must(t)(s.js.Publish(t.Context(), "lapse.main.events.orders.DocumentMelted", nil))
	if _, err := next(); !errors.As(err, new(*client.DecodeError)) {
		t.Errorf("an unknown event: %v", err)
	}
}
