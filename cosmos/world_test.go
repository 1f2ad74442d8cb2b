package cosmos_test

import (
	"io"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/cosmos"
	"github.com/lapsedb/lapse/lapsetest/bubble"
	"github.com/lapsedb/lapse/test/harness"
)

// world is a gateway of a database that is kept, in a bubble, and the other side of it.
type world struct {
	testing.TB
	lapse   *bubble.Server
	gateway *cosmos.Gateway
	nc      *nats.Conn // the gateway's
	client  *client.Client
	orders  *client.Collection
	log     jetstream.Stream
}

// inBubble runs a test with a gateway and the collection orders, whose documents are items.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		w := &world{TB: t, lapse: s, nc: s.Connect(t), client: s.Client(t)}
		var err error
		w.gateway, err = cosmos.New(cosmos.Options{Connect: func(database string) (*client.Client, func(), error) {
			c, err := client.New(w.nc, client.WithDatabase(database))
			return c, func() {}, err
		}})
		check(t, err)
		defer w.gateway.Close()
		w.orders, err = w.client.CreateCollection(t.Context(), "orders", client.TTLPerDocument())
		check(t, err)
		js, err := jetstream.New(s.Connect(t))
		if err == nil {
			w.log, err = js.Stream(t.Context(), "LAPSE_main")
		}
		check(t, err)
		test(t, w)
	})
}

// create stores items over NATS, and returns when all that follows from it has happened.
func (w *world) create(ids ...string) {
	w.Helper()
	for _, id := range ids {
		if _, err := client.Create(w.Context(), w.orders, id, map[string]string{"name": id}); err != nil {
			w.Fatal(err)
		}
	}
	synctest.Wait()
}

// ask is send with a body that is there.
func (w *world) ask(method, body string, headers ...string) *httptest.ResponseRecorder {
	return w.send(method, strings.NewReader(body), headers...)
}

// send sends a request about the items of orders.
func (w *world) send(method string, body io.Reader, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(w.Context(), method, "http://localhost/dbs/main/colls/orders/docs", body)
	r.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig=a"))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	w.gateway.ServeHTTP(answer, r)
	return answer
}

var check = harness.Check
