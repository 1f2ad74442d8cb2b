package console_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/console"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/harness/inprocess"
)

// lapse is a client of a complete lapse, which all tests share.
var lapse *client.Client

func TestMain(m *testing.M) {
	stop, err := serve()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := errors.Join(stop(), goleak.Find()); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func serve() (stop func() error, err error) {
	url, end, err := inprocess.Serve()
	if err != nil {
		return nil, err
	}
	lapse, err = client.Connect(url, client.WithTimeout(30*time.Second))
	return func() error { lapse.Close(); return end() }, err
}

// start serves a console.
func start(t testing.TB, options console.Options) *httptest.Server {
	t.Helper()
	return host(t, console.New(t.Context(), lapse, options))
}

// host serves a handler until the end of the test.
func host(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// collection creates a collection and deletes it at the end of the test. Its name is as
// long as allowed, and new, so that no earlier run of the test is in its history.
func collection(t testing.TB, opts ...client.PropertyOption) *client.Collection {
	t.Helper()
	test := strings.NewReplacer("/", "", "#", "").Replace(t.Name())
	name := (rand.Text() + test + strings.Repeat("_", 64))[:64]
	coll, err := lapse.CreateCollection(t.Context(), name, opts...)
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = lapse.DeleteCollection(ctx, name)
	})
	return coll
}

func put(t testing.TB, coll *client.Collection, id, body string) {
	t.Helper()
	if _, err := lapse.Do(t.Context(), "document.upsert", coll.Name(), id, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

var check = harness.Check
