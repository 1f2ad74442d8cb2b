package eventlog_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/processortest"
)

// TestSilentDial: while a dial hangs, as when no DNS server answers, a connection still
// tells its state and stops waiting for replies in time; later it connects.
func TestSilentDial(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	answers, hanging := make(chan struct{}), make(chan struct{}, 1000)
	var hangs atomic.Bool
	dialer := &eventlog.Dialer{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if hangs.Load() {
			hanging <- struct{}{}
			<-answers // whatever ctx is
		}
		return (&net.Dialer{}).DialContext(ctx, network, s.Addr().String())
	}}
	nc, err := nats.Connect("nats://name.invalid:4222", append(eventlog.ConnectOptions(), dialer.Option(), nats.Timeout(processortest.Patience))...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	dialer.Connected()
	hangs.Store(true)
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	<-hanging
	asked := make(chan error, 1)
	go func() {
		_ = nc.IsConnected()
		_, err := nc.Request("x", nil, time.Millisecond)
		asked <- err
	}()
	select {
	case err := <-asked:
		if err == nil {
			t.Error("it is connected")
		}
	case <-time.After(processortest.Patience):
		t.Error("it hangs with the dial")
	}
	hangs.Store(false)
	close(answers)
	processortest.Await(nc.IsConnected)
	if !nc.IsConnected() {
		t.Errorf("the connection is %s: %v", nc.Status(), nc.LastError())
	}
}
