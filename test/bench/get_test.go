package bench

import (
	"bytes"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkGet reads documents by request, against a service that sends back a
// body of the size of the reply. The service is asked on as many subjects as
// there are documents, since looking up who listens to a subject is a good part
// of what a request costs a NATS server, and, to see that part, on one only.
func BenchmarkGet(b *testing.B) {
	b.Run("subject-per-document", func(b *testing.B) {
		benchmarkGet(b, func(n int) string { return echoSubject + "." + versus.ID(n) })
	})
	b.Run("one-subject", func(b *testing.B) {
		benchmarkGet(b, func(int) string { return echoSubject })
	})
}

func benchmarkGet(b *testing.B, echo func(n int) string) {
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
	peer := &versus.Callers{N: callers, For: roundTime, Do: func(caller, n int) error {
		_, err := theirs[caller%connections].Request(echo(versus.Spread(n, documents)), body, timeout)
		return err
	}}
	versus.Run(b, lapse.Round(b), peer.Round(b))
	b.ReportMetric(float64(len(body)), "reply-B")
}
