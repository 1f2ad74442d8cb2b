package eventlog_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/processortest"
)

// TestConnectionsMeetAtOneServer: connections follow the first one to its server, if they
// know that server, whichever of them is lost.
func TestConnectionsMeetAtOneServer(t *testing.T) {
	var urls []string
	servers := make(map[string]*server.Server) // by URL
	for range 3 {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		defer func() { s.Shutdown(); s.WaitForShutdown() }()
		urls = append(urls, s.ClientURL())
		servers[s.ClientURL()] = s
	}
	connect := func(urls ...string) *nats.Conn {
		nc, err := nats.Connect(strings.Join(urls, ","), append(eventlog.ConnectOptions(), nats.DontRandomize(), nats.ReconnectWait(time.Millisecond))...)
		if err != nil {
			t.Fatal(err)
		}
		return nc
	}
	lead, other, stays := connect(urls...), connect(urls[1], urls[2], urls[0]), connect(urls[2])
	defer lead.Close()
	defer other.Close()
	defer stays.Close()
	eventlog.BringTo(t.Context(), lead, other)
	eventlog.BringTo(t.Context(), lead, stays)
	if lead.ConnectedUrl() != urls[0] || other.ConnectedUrl() != urls[0] || stays.ConnectedUrl() != urls[2] {
		t.Fatalf("they begin at %s, %s and %s", lead.ConnectedUrl(), other.ConnectedUrl(), stays.ConnectedUrl())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		eventlog.KeepTogether(ctx, lead, other, stays)
	}()
	defer func() { cancel(); <-ended }()
	together := func(after string) {
		t.Helper()
		processortest.Await(func() bool { at := lead.ConnectedUrl(); return at != "" && other.ConnectedUrl() == at })
		if lead.ConnectedUrl() != other.ConnectedUrl() {
			t.Errorf("after %s they are at %s and %s", after, lead.ConnectedUrl(), other.ConnectedUrl())
		}
	}
	force := func(nc *nats.Conn) {
		t.Helper()
		before := nc.Stats().Reconnects
		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		processortest.Await(func() bool { return nc.Stats().Reconnects > before })
	}
	for range 5 {
		force(lead)
		together("the first one moved")
		force(other)
		together("the other one moved")
	}
	gone := lead.ConnectedUrl()
	servers[gone].Shutdown()
	processortest.Await(func() bool { at := lead.ConnectedUrl(); return at != "" && at != gone })
	together("a server ended")
	if stays.IsConnected() && stays.Stats().Reconnects > 0 {
		t.Error("one that knows no other server was moved")
	}
}
