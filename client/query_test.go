package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
)

// shelf answers queries over n orders whose ids and totals count up from 0. Its cursor is
// the number of the next order. It refuses a page for which fits returns false.
type shelf struct {
	n     int
	fits  func(from, limit int) bool
	short int // documents of a page, at most, if not 0
}

func (sh shelf) answer(body []byte) (int, string) {
	var q struct {
		Limit   int    `json:"limit"`
		Cursor  string `json:"cursor"`
		Explain bool   `json:"explain"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return 400, `{"code":400,"error":"bad_query","message":"no JSON"}`
	}
	from := 0
	if q.Cursor != "" {
		_, _ = fmt.Sscanf(q.Cursor, "at %d", &from)
	}
	if sh.fits != nil && !sh.fits(from, q.Limit) {
		return 413, `{"code":413,"error":"too_large","message":"the page is too large: use a smaller limit"}`
	}
	to := min(from+q.Limit, sh.n)
	if sh.short > 0 {
		to = min(to, from+sh.short)
	}
	documents := []string{}
	for i := from; i < to; i++ {
		documents = append(documents, fmt.Sprintf(`{"id":"%d","total":%d,"_ts":5,"_etag":"%d"}`, i, i, i+10))
	}
	text := `{"documents":[` + strings.Join(documents, ",") + `]`
	if to < sh.n {
		text += fmt.Sprintf(`,"cursor":"at %d"`, to)
	}
	if q.Explain {
		text += fmt.Sprintf(`,"plan":{"index":"/total","scanned":%d,"returned":%d,"behind":%d,"building":["/b"]}`, 2*len(documents), len(documents), to)
	}
	return 200, text + "}"
}

// asked returns the limits of the queries so far.
func asked(t *testing.T, s *standin) (limits []int) {
	t.Helper()
	for _, body := range s.bodies("query.orders") {
		var q struct {
			Limit int `json:"limit"`
		}
		check(t, json.Unmarshal([]byte(body), &q))
		limits = append(limits, q.Limit)
	}
	return limits
}

func TestQuery(t *testing.T) {
	for name, test := range map[string]struct {
		opts   []client.QueryOption
		fits   func(from, limit int) bool
		short  int
		from   int
		want   int
		limits []int
	}{
		"all":              {want: 230, limits: []int{100, 100, 100}},
		"page size":        {opts: []client.QueryOption{client.PageSize(115)}, want: 230, limits: []int{115, 115}},
		"limit":            {opts: []client.QueryOption{client.Limit(5)}, want: 5, limits: []int{5}},
		"limit over pages": {opts: []client.QueryOption{client.Limit(210), client.PageSize(100)}, want: 210, limits: []int{100, 100, 10}},
		"limit, one page":  {opts: []client.QueryOption{client.Limit(200)}, want: 200, limits: []int{200}},
		"limit, large":     {opts: []client.QueryOption{client.Limit(5000)}, want: 230, limits: []int{1000}},
		"cursor":           {opts: []client.QueryOption{client.FromCursor("at 200")}, from: 200, want: 30, limits: []int{100}},
		"short pages":      {short: 90, want: 230, limits: []int{100, 100, 100}},
		"limit over short": {opts: []client.QueryOption{client.Limit(100)}, short: 40, want: 100, limits: []int{100, 60, 20}},
		"halving":          {fits: func(_, limit int) bool { return limit < 60 }, want: 230, limits: []int{100, 50, 50, 50, 50, 100, 50}},
		"halving below a limit": {opts: []client.QueryOption{client.Limit(12), client.PageSize(10)},
			fits: func(_, limit int) bool { return limit < 4 }, want: 12, limits: []int{10, 5, 2, 2, 2, 2, 4, 2, 2}},
		// One large document in the middle does not slow down the later pages.
		"a large one": {opts: []client.QueryOption{client.PageSize(32)}, fits: func(from, limit int) bool { return from > 3 || from+limit <= 3 || limit == 1 }, want: 230,
			limits: []int{32, 16, 8, 4, 2, 2, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 32}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandin(t).serve()
			coll := s.collection(s.client())
			s.respond("query.orders", shelf{230, test.fits, test.short}.answer)
			for range 2 { // a second loop over the same query starts from the beginning
				next := test.from
				for item, err := range client.Query[order](t.Context(), coll, test.opts...) {
					check(t, err)
					if want := (client.Item[order]{ID: fmt.Sprint(next), Value: order{Total: next}, Modified: time.Unix(5, 0).UTC(), ETag: fmt.Sprint(next + 10)}); item != want {
						t.Fatalf("got %+v, want %+v", item, want)
					}
					next++
				}
				if next != test.from+test.want {
					t.Errorf("ended at %d", next)
				}
			}
			if got := asked(t, s); !slices.Equal(got[:len(got)/2], test.limits) {
				t.Errorf("asked for %v, want %v", got[:len(got)/2], test.limits)
			}
		})
	}
}

func TestQueryRequest(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	s.answer("query.orders", 200, `{"documents":[{"total":3}]}`)
	exact, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	type named struct {
		Min int `json:"min"`
	}
	for _, test := range []struct {
		opts []client.QueryOption
		want string
	}{
		{nil, `{"limit":100}`},
		{[]client.QueryOption{client.Where("doc.a < '&'", nil)}, `{"where":"doc.a < '&'","limit":100}`},
		{[]client.QueryOption{client.Where("true", map[string]any(nil))}, `{"where":"true","limit":100}`},
		{[]client.QueryOption{client.Where("true", named{5})}, `{"where":"true","params":{"min":5},"limit":100}`},
		{[]client.QueryOption{client.Where("true", json.RawMessage(` {"min": 1e400}`))}, `{"where":"true","params":{"min":1e400},"limit":100}`},
		{[]client.QueryOption{client.Where("true", map[string]any{"a": "<b>&", "b": uint64(math.MaxUint64), "c": exact, "d": json.RawMessage("9007199254740993.0")})},
			`{"where":"true","params":{"a":"<b>&","b":18446744073709551615,"c":123456789012345678901234567890,"d":9007199254740993.0},"limit":100}`},
		{[]client.QueryOption{client.IDPrefix("s-"), client.Held()}, `{"limit":100,"idPrefix":"s-","held":true}`},
		{[]client.QueryOption{client.IDPrefix("")}, `{"limit":100,"idPrefix":""}`},
		{[]client.QueryOption{client.OrderBy("/total", client.Desc), client.OrderBy("/a/b", client.Asc), client.Select("/id"), client.Select("/a/b", "/c"),
			client.PageSize(7), client.FromCursor("c"), client.Explain(&client.Plan{})},
			`{"orderBy":[{"path":"/total","desc":true},{"path":"/a/b"}],"select":["/id","/a/b","/c"],"limit":7,"cursor":"c","explain":true}`},
	} {
		page, err := client.QueryPage[order](t.Context(), coll, test.opts...)
		if err != nil || len(page.Items) != 1 || page.Items[0] != (client.Item[order]{Value: order{Total: 3}}) || page.Cursor != "" {
			t.Errorf("%+v, %v", page, err)
		}
		if got := string(s.last().Data); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}

	// Every page request carries the RequestOptions.
	s.respond("query.orders", shelf{n: 3}.answer)
	for _, err := range client.Query[order](t.Context(), coll, client.PageSize(2), client.MinSeq(8)) {
		check(t, err)
		if got := s.last().Header.Get("Lapse-Min-Seq"); got != "8" {
			t.Errorf("Lapse-Min-Seq %q", got)
		}
	}
}

func TestQueryPages(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	s.respond("query.orders", shelf{n: 5}.answer)
	var plan client.Plan
	var got []string
	for page, err := range client.QueryPages[json.RawMessage](t.Context(), coll, client.PageSize(2), client.Explain(&plan)) {
		check(t, err)
		explained, _ := json.Marshal(plan)
		got = append(got, fmt.Sprintf("%d %q %s", len(page.Items), page.Cursor, explained))
	}
	want := []string{
		`2 "at 2" {"index":"/total","scanned":4,"returned":2,"behind":2,"building":["/b"]}`,
		`2 "at 4" {"index":"/total","scanned":8,"returned":4,"behind":4,"building":["/b"]}`,
		`1 "" {"index":"/total","scanned":10,"returned":5,"behind":5,"building":["/b"]}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}

	page, err := client.QueryPage[json.RawMessage](t.Context(), coll, client.Limit(3), client.Explain(&plan))
	if err != nil || len(page.Items) != 3 || page.Cursor != "at 3" || plan.Scanned != 6 ||
		string(page.Items[2].Value) != `{"id":"2","total":2,"_ts":5,"_etag":"12"}` {
		t.Errorf("%+v, %+v, %v", page, plan, err)
	}
	// QueryPage does not reduce the page size by itself.
	s.respond("query.orders", shelf{n: 5, fits: func(_, limit int) bool { return limit == 1 }}.answer)
	if _, err := client.QueryPage[order](t.Context(), coll); !errors.Is(err, client.ErrTooLarge) || err.Error() != "the page is too large: use a smaller limit" {
		t.Error(err)
	}
}

// TestCount: a count takes what chooses documents, and leaves out their order and limit.
func TestCount(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	s.answer("query.orders", 200, `{"count":12,"plan":{"index":null,"scanned":30,"returned":12}}`)
	var plan client.Plan
	n, err := client.Count(t.Context(), coll, client.Where("doc.a == params.a", map[string]string{"a": "b"}), client.IDPrefix("s-"),
		client.OrderBy("/a", client.Asc), client.Limit(3), client.MinSeq(4), client.Explain(&plan))
	if err != nil || n != 12 || plan.Index != "" || plan.Scanned != 30 {
		t.Errorf("%d, %+v, %v", n, plan, err)
	}
	if got := s.last(); string(got.Data) != `{"where":"doc.a == params.a","params":{"a":"b"},"count":true,"explain":true,"idPrefix":"s-"}` || got.Header.Get("Lapse-Min-Seq") != "4" {
		t.Errorf("%s, %v", got.Data, got.Header)
	}
	s.answer("query.orders", 200, `{"documents":[]}`)
	if _, err := client.Count(t.Context(), coll); !decoding(err, "") {
		t.Errorf("no count: %v", err)
	}
	if _, err := client.Count(t.Context(), coll, client.Where("true", 5)); !errors.Is(err, client.ErrBadQuery) {
		t.Errorf("bad params: %v", err)
	}
}

// TestQueryErrors: an error is the last value yielded, after all documents before it.
func TestQueryErrors(t *testing.T) {
	t.Parallel()
	s := newStandin(t).serve()
	c := s.client(client.WithTimeout(5 * time.Second)) // bounds the wait for the missing reply
	coll := s.collection(c)
	run := func(opts ...client.QueryOption) (n int, last error) {
		for item, err := range client.Query[order](t.Context(), coll, opts...) {
			if last != nil {
				t.Errorf("%+v, %v after %v", item, err, last)
			}
			if last = err; err == nil {
				n++
			}
		}
		return n, last
	}
	onSecondPage := func(status int, body string) answer {
		return func(request []byte) (int, string) {
			if strings.Contains(string(request), "cursor") {
				return status, body
			}
			return shelf{n: 3}.answer(request)
		}
	}
	for name, test := range map[string]struct {
		status int
		body   string
		n      int
		want   error
	}{
		"refused":    {400, `{"code":400,"error":"bad_query","message":"m"}`, 2, client.ErrBadQuery},
		"overloaded": {429, `{"code":429,"error":"overloaded","message":"m"}`, 2, client.ErrOverloaded},
		"silent":     {0, "", 2, client.ErrTimeout},
		"too large":  {413, `{"code":413,"error":"too_large","message":"m"}`, 2, client.ErrTooLarge},
	} {
		s.respond("query.orders", onSecondPage(test.status, test.body))
		if n, err := run(client.PageSize(2)); n != test.n || !errors.Is(err, test.want) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	if got := asked(t, s); len(got) != 2*4+1 || !slices.Contains(got, 1) {
		t.Errorf("asked for %v: only what is too large is asked for again, once with 1", got)
	}

	// An invalid option fails without a request.
	before := len(s.bodies("query.orders"))
	for name, opt := range map[string]client.QueryOption{
		"limit":           client.Limit(0),
		"page size":       client.PageSize(0),
		"large page size": client.PageSize(1001),
		"number":          client.Where("true", 5),
		"list":            client.Where("true", []int{5}),
		"no JSON":         client.Where("true", json.RawMessage(`{"a"`)),
		"empty":           client.Where("true", json.RawMessage(" ")),
	} {
		if n, err := run(opt, client.Limit(-1)); n != 0 || !errors.Is(err, client.ErrBadQuery) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if _, err := client.QueryPage[order](t.Context(), coll, opt); !errors.Is(err, client.ErrBadQuery) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := run(client.Where("true", map[string]any{"f": func() {}})); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("not to be encoded: %v", err)
	}
	// A request that is too large is not retried with a smaller page.
	if _, err := run(client.Where("true", map[string]any{"s": string(make([]byte, 2<<20))})); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("too large for NATS: %v", err)
	}
	if after := len(s.bodies("query.orders")); after != before {
		t.Errorf("%d requests", after-before)
	}
}

func TestQueryStops(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	s.respond("query.orders", shelf{n: 500}.answer)
	for item, err := range client.Query[order](t.Context(), coll, client.PageSize(2)) {
		check(t, err)
		if item.ID == "2" {
			break
		}
	}
	if got := asked(t, s); len(got) != 2 {
		t.Errorf("asked for %v", got)
	}

	// A cancelled context ends the loop within a page.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n int
	var last error
	for _, err := range client.Query[order](ctx, coll) {
		if last = err; err == nil {
			n++
		}
		if n == 2 {
			cancel()
		}
	}
	if n != 2 || !errors.Is(last, context.Canceled) {
		t.Errorf("%d, %v", n, last)
	}
	// A deadline ends the loop while it waits for a reply.
	s.answer("query.orders", 0, "")
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, err := range client.QueryPages[order](late, coll) {
		if last = err; err != context.DeadlineExceeded {
			t.Errorf("late: %v", err)
		}
	}
	if last == nil {
		t.Error("no error")
	}
}
