package bench

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/test/versus"
)

const echoSubject = "bench.echo"

// startEcho serves what any NATS service costs: it sends the body back.
func startEcho(b *testing.B) (conns []*nats.Conn) {
	b.Helper()
	url := versus.StartServer(b, false)
	service, err := micro.AddService(versus.Connect(b, url), micro.Config{Name: "echo", Version: "0.0.0"})
	if err != nil {
		b.Fatal(err)
	}
	for name, subject := range map[string]string{"one": echoSubject, "many": echoSubject + ".>"} {
		if err := service.AddEndpoint(name, micro.HandlerFunc(func(r micro.Request) { _ = r.Respond(r.Data()) }),
			micro.WithEndpointSubject(subject)); err != nil {
			b.Fatal(err)
		}
	}
	return versus.Connections(b, url, connections)
}
