package eventlog_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/processortest"
)

// TestReconnectAfterAuthRefusal: a connection whose user the server refuses for a while
// reconnects afterwards.
func TestReconnectAfterAuthRefusal(t *testing.T) {
	t.Parallel()
	options := func(password string) *server.Options {
		return &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: "lapse", Password: password, NoSigs: true, NoLog: true}
	}
	s, err := server.NewServer(options("x"))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := nats.Connect(s.ClientURL(), append(eventlog.ConnectOptions(), nats.UserInfo("lapse", "x"), nats.Timeout(processortest.Patience))...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	reload := func(password string) {
		t.Helper()
		if err := s.ReloadOptions(options(password)); err != nil {
			t.Fatal(err)
		}
	}
	reload("y")
	processortest.Await(func() bool { return !nc.IsConnected() })
	time.Sleep(2 * time.Second) // for several refusals
	reload("x")
	processortest.Await(nc.IsConnected)
	if !nc.IsConnected() {
		t.Errorf("the connection is %s: %v", nc.Status(), nc.LastError())
	}
}
