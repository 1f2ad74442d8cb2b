package cosmos_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestUnreadable: what an upsert would replace is asked of the writer, since a standby may not
// have it yet; if it cannot be read, nothing is written.
func TestUnreadable(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.lapse.Stop(t)
		asked, nc := make(chan string, 10), w.lapse.Connect(t)
		_, err := nc.Subscribe("lapse.main.api.>", func(m *nats.Msg) {
			op := strings.TrimPrefix(m.Subject, "lapse.main.api.")
			asked <- op
			status, body := "404", `{"code":404,"error":"document_not_found","message":"a standby lags"}`
			switch {
			case strings.HasPrefix(op, "collection.get"):
				status, body = "200", `{"id":"orders","metadata":{"cosmos":"{\"partitionKey\":{\"paths\":[\"/k\"]}}"},"_ts":1,"_etag":"1"}`
			case strings.HasPrefix(op, "batch"):
				status, body = "429", `{"code":429,"error":"overloaded","message":"try again"}`
			case strings.HasPrefix(op, "document.upsert"):
				status, body = "201", `{"id":"v:a","k":"v","_ts":1,"_etag":"2"}`
			}
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Lapse-Status": {status}}, Data: []byte(body)})
		})
		if err == nil {
			err = nc.Flush()
		}
		check(t, err)
		answer := w.ask("POST", `{"id":"a","k":"v"}`, append(of(`["v"]`), "x-ms-documentdb-is-upsert", "true")...)
		close(asked)
		var ops []string
		for op := range asked {
			ops = append(ops, op)
		}
		if got := strings.Join(ops, " "); answer.Code != 429 || got != "collection.get.orders batch.orders" {
			t.Errorf("%d %s after %s", answer.Code, answer.Body, got)
		}
	})
}
