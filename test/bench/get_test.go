package bench

import (
	"bytes"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/internal/versus"
	"github.com/lapsedb/lapse/processor"
)

// BenchmarkGet reads documents by request, against a service that sends back a
// body of the size of the reply.
func BenchmarkGet(b *testing.B) {
	const callers, documents = 64, 20_000
	l := startLapse(b, processor.OS)
	load(b, l.create(b, "orders", client.DefaultTTL(time.Hour)), 0, documents, versus.Document)
	ours := versus.Connections(b, l.URL(), connections)
	reply, err := request(ours[0], subject("get", "orders", 0), nil, read)
	if err != nil {
		b.Fatal(err)
	}
	body := bytes.Clone(reply.Data)
	theirs := startEcho(b)

	lapse := &versus.Callers{N: callers, For: roundTime, Do: func(caller, n int) error {
		_, err := request(ours[caller%connections], subject("get", "orders", versus.Spread(n, documents)), nil, read)
		return err
	}}
	peer := &versus.Callers{N: callers, For: roundTime, Do: func(caller, _ int) error {
		_, err := theirs[caller%connections].Request(echoSubject, body, timeout)
		return err
	}}
	versus.Run(b, lapse.Round(b), peer.Round(b))
	b.ReportMetric(float64(len(body)), "reply-B")
}
