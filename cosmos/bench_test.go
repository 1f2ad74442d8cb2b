package cosmos_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lapsedb/lapse/host"
)

// BenchmarkRequests compares requests of 64 callers with those to a handler with a constant
// body.
func BenchmarkRequests(b *testing.B) {
	g := start(b, host.Cosmos{})
	g.container("c", "/k", "")
	g.want(201, "POST", "dbs/db/colls/c/docs", `{"id":"a","k":"v"}`, of(`["v"]`)...)
	constant := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"id":"a","k":"v","_ts":946684800,"_etag":"\"4\""}`)
	}))
	b.Cleanup(constant.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	b.Cleanup(transport.CloseIdleConnections)
	c := http.Client{Transport: transport}
	var n atomic.Int64
	for _, kind := range []struct{ name, url, method, path string }{
		{"constant", constant.URL, "GET", "dbs/db/colls/c/docs/a"}, {"get", g.url, "GET", "dbs/db/colls/c/docs/a"}, {"create", g.url, "POST", "dbs/db/colls/c/docs"},
	} {
		b.Run(kind.name, func(b *testing.B) {
			b.SetParallelism(32) // of two processors
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					body := ""
					if kind.method == "POST" {
						body = fmt.Sprintf(`{"id":"n%d","k":"v"}`, n.Add(1))
					}
					r, _ := http.NewRequest(kind.method, kind.url+"/"+kind.path, strings.NewReader(body))
					r.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig=a"))
					r.Header.Set("x-ms-documentdb-partitionkey", `["v"]`)
					response, err := c.Do(r)
					if err != nil || response.StatusCode >= 300 {
						b.Error(response, err)
						return
					}
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			})
		})
	}
}
