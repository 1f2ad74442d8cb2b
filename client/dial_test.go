package client

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
)

// TestConnectToOthers: the error of Connect says what answers there, and advises to try
// again only if it may be a NATS server.
func TestConnectToOthers(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, the test never does
	check(t, err)
	defer silent.Close()
	host, quiet := web.Listener.Addr().String(), silent.Addr().String()
	defer func(before time.Duration) { answerTimeout = before }(answerTimeout)
	for _, test := range []struct {
		address string
		answers time.Duration
		is      error
		says    string
	}{
		{"http://" + host, 0, ErrBadRequest, "http://" + host + " is not the address of a NATS server: use nats://HOST:PORT"},
		{host, time.Minute, nats.ErrNoInfoReceived, "the server at nats://" + host + " speaks HTTP, not NATS: check the port"},
		{"ws://" + host, 0, ErrUnavailable, "cannot connect to NATS at ws://" + host},
		{quiet, time.Millisecond, ErrUnavailable, "the server at nats://" + quiet + " accepts the connection and sends nothing: try again if"},
		{host + "," + quiet, time.Millisecond, ErrUnavailable, "sends nothing: try again if"}, // one of them may be NATS
	} {
		answerTimeout = test.answers
		var short Option = func(*options) {}
		if test.answers > 0 {
			short = WithNATSOptions(nats.Timeout(200 * time.Millisecond))
		}
		_, err := Connect(test.address, short)
		if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.address, err)
		}
	}
}

// TestConnectDuringReload: a server that refuses a login once, as while it reloads its users,
// is asked again; one that goes on refusing is believed.
func TestConnectDuringReload(t *testing.T) {
	o := harness.NATSOptions("")
	o.JetStream = false
	doors := new(door)
	doors.refuses.Store(1)
	o.CustomClientAuthentication = doors
	url := harness.StartNATS(t, o).ClientURL()
	c, err := Connect(url)
	check(t, err)
	c.Close()
	doors.refuses.Store(10)
	if _, err := Connect(url); !errors.Is(err, nats.ErrAuthorization) || !strings.Contains(err.Error(), "refuses these credentials") {
		t.Error(err)
	}
	if remaining := doors.refuses.Load(); remaining != 8 {
		t.Errorf("it tried %d times", 10-remaining)
	}
}

// door refuses the next logins.
type door struct{ refuses atomic.Int32 }

func (d *door) Check(server.ClientAuthentication) bool {
	return d.refuses.Add(-1) < 0
}
