package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
)

// TestCollections: options begin with the properties of another collection, and change a
// copy; a list has all pages.
func TestCollections(t *testing.T) {
	s := newStandin(t).serve()
	c, ctx := s.client(), t.Context()
	info := s.collection(c).Info()
	s.answer("collection.create.orders", 201, `{"id":"orders","_ts":5,"_etag":"1"}`)
	labelled := client.Properties{PreviousImages: true, IndexingMode: client.Consistent, Metadata: map[string]string{"owner": "shop", "cosmos": "{}"}}
	for _, test := range []struct {
		opts []client.PropertyOption
		want string // how the properties end
	}{
		{nil, `{"defaultTtl":null,"indexingPolicy":{"indexingMode":"consistent","includedPaths":[]},"previousImages":true}`},
		{[]client.PropertyOption{client.Like(info.Properties), client.TTLPerDocument(), client.IncludePaths("/a", "/b")},
			`{"defaultTtl":-1,"indexingPolicy":{"indexingMode":"consistent","includedPaths":[{"path":"/total"},{"path":"/a"},{"path":"/b"}]},"previousImages":true}`},
		{[]client.PropertyOption{client.Metadata("b", ""), client.Metadata("a", "<é"), client.Metadata("a", "x")}, `"metadata":{"a":"x","b":""}}`},
		{[]client.PropertyOption{client.Like(labelled), client.Metadata("owner", "warehouse")}, `"metadata":{"cosmos":"{}","owner":"warehouse"}}`},
		{[]client.PropertyOption{client.Like(labelled), client.WithoutMetadata("owner", "other")}, `"metadata":{"cosmos":"{}"}}`},
		{[]client.PropertyOption{client.Like(labelled), client.WithoutMetadata("owner", "cosmos")}, `"previousImages":true}`},
		{[]client.PropertyOption{client.Like(labelled)}, `"metadata":{"cosmos":"{}","owner":"shop"}}`}, // the options before changed copies
	} {
		if _, err := c.CreateCollection(ctx, "orders", test.opts...); err != nil || !strings.HasSuffix(string(s.last().Data), test.want) {
			t.Errorf("%v: %s, want %s", err, s.last().Data, test.want)
		}
	}
	s.respond("collection.list", func(body []byte) (int, string) {
		return 200, map[string]string{
			"":               `{"collections":[{"id":"a"}],"cursor":"a"}`,
			`{"cursor":"a"}`: `{"collections":[{"id":"b"}],"cursor":"b"}`,
			`{"cursor":"b"}`: `{"collections":[{"id":"c"}]}`,
		}[string(body)]
	})
	if list, err := c.Collections(ctx); err != nil || len(list) != 3 || list[2].Name != "c" || list[2].DefaultTTL != client.TTLOff {
		t.Errorf("of three pages: %+v, %v", list, err)
	}
}

// TestHistoryPages: History requests pages until it has its limit.
func TestHistoryPages(t *testing.T) {
	s := newStandin(t).serve()
	c := s.client()
	s.answer("status", 200, `{}`)
	const event = `{"seq":%d,"time":"2015-05-17T10:05:03.000Z","type":"DocumentCreated","collection":"orders","id":"a","body":{}}`
	s.respond("history.orders.a", func(body []byte) (int, string) {
		if bytes.Contains(body, []byte("cursor")) {
			return 200, fmt.Sprintf(`{"events":[`+event+`]}`, 3)
		}
		return 200, fmt.Sprintf(`{"events":[`+event+`,`+event+`],"cursor":"x"}`, 5, 4)
	})
	for _, test := range []struct {
		limit, events int
		requests      string
	}{
		{0, 3, `[{"limit":100} {"limit":98,"cursor":"x"}]`},
		{2, 2, `[{"limit":2}]`},
		{5000, 3, `[{"limit":1000} {"limit":1000,"cursor":"x"}]`},
	} {
		before := len(s.bodies("history.orders.a"))
		events, err := client.History(t.Context(), s.collection(c), "a", test.limit)
		if err != nil || len(events) != test.events {
			t.Errorf("limit %d: %d events, want %d: %v", test.limit, len(events), test.events, err)
		}
		if got := fmt.Sprint(s.bodies("history.orders.a")[before:]); got != test.requests {
			t.Errorf("limit %d: requests %s, want %s", test.limit, got, test.requests)
		}
	}
}

// TestChangeCollection: ChangeCollection keeps properties that no option names, even when
// another client changes them concurrently.
func TestChangeCollection(t *testing.T) {
	c, err := client.Connect(address, client.WithTimeout(patience))
	check(t, err)
	defer c.Close()
	ctx := t.Context()
	must(t)(c.CreateCollection(ctx, "changed", client.DefaultTTL(time.Hour), client.Indexing(client.Lazy), client.IncludePaths("/a"), client.PreviousImages(false), client.Metadata("owner", "shop")))
	defer func() {
		check(t, c.DeleteCollection(ctx, "changed"))
	}()
	var changes sync.WaitGroup
	for _, change := range []client.PropertyOption{client.TTLPerDocument(), client.Indexing(client.Consistent), client.IncludePaths("/b"), client.PreviousImages(true), client.Metadata("a", "b")} {
		changes.Go(func() {
			if _, err := c.ChangeCollection(ctx, "changed", change); err != nil {
				t.Error(err)
			}
		})
	}
	changes.Wait()
	after, err := c.Collection(ctx, "changed")
	check(t, err)
	want := client.Properties{DefaultTTL: client.NoDefault, IndexingMode: client.Consistent, IncludedPaths: []string{"/a", "/b"}, PreviousImages: true,
		Metadata: map[string]string{"owner": "shop", "a": "b"}}
	if got := after.Info().Properties; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := c.ChangeCollection(ctx, "missing", client.WithoutTTL()); !errors.Is(err, client.ErrCollectionNotFound) {
		t.Error(err)
	}
}

// TestOpenCollection: the first use creates the collection, later ones leave it as it is.
func TestOpenCollection(t *testing.T) {
	s := newStandin(t).serve()
	c := s.client()
	s.answer("collection.create.carts", 201, `{"id":"carts","defaultTtl":60,"_ts":5,"_etag":"1"}`)
	coll, err := c.OpenCollection(t.Context(), "carts", client.DefaultTTL(time.Minute))
	if err != nil || coll.Info().DefaultTTL != 60 {
		t.Error(coll, err)
	}
	s.answer("collection.create.carts", 409, `{"code":409,"error":"collection_exists","message":"it exists"}`)
	s.answer("collection.get.carts", 200, `{"id":"carts","defaultTtl":90,"_ts":5,"_etag":"1"}`)
	coll, err = c.OpenCollection(t.Context(), "carts", client.DefaultTTL(time.Minute))
	if err != nil || coll.Info().DefaultTTL != 90 {
		t.Error(coll, err)
	}
	s.answer("collection.create.carts", 400, `{"code":400,"error":"bad_request","message":"no"}`)
	if _, err = c.OpenCollection(t.Context(), "carts"); !errors.Is(err, client.ErrBadRequest) {
		t.Error(err)
	}
}
