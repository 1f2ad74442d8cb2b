package eventlog

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Dialer dials the servers of one connection, one at a time. nats.go looks names up and
// dials while it holds the connection's lock, for which all else waits that asks for its
// state or sends. So once connected, Dial waits only briefly and goes on in the background,
// for nats.go tries the address again.
//
// A dial under way is in dialing until its result is taken, or dialKept after it is there.
// The goroutine of a dial ends by then at the latest.
type Dialer struct {
	// DialContext dials; nil for TCP, to any address of a name.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)

	connected atomic.Bool
	mu        sync.Mutex
	dialing   map[string]chan dialed // by address
}

type dialed struct {
	conn net.Conn
	err  error
}

const (
	dialWait = 100 * time.Millisecond // under the lock of nats.go
	// dialKept is how long a connection waits for the next attempt at its address; NATS
	// closes it when nobody logs in for 2 s.
	dialKept = time.Second
)

var errDialing = errors.New("the server does not answer yet")

// Option returns the option for the connection. A custom dialer that it has already stays.
func (d *Dialer) Option() nats.Option {
	return func(o *nats.Options) error {
		o.SkipHostLookup = true
		if o.CustomDialer == nil {
			o.CustomDialer = d
		}
		return nil
	}
}

// Connected ends the patience of the first connect, which tries each server once.
func (d *Dialer) Connected() { d.connected.Store(true) }

// Dial implements nats.CustomDialer.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	wait := dialWait
	if !d.connected.Load() {
		wait = 2 * nats.DefaultTimeout // the dial ends before
	}
	patience := time.NewTimer(wait)
	defer patience.Stop()
	select {
	case made := <-d.begin(network, address):
		d.end(address)
		return made.conn, made.err
	case <-patience.C:
		return nil, errDialing
	}
}

// begin dials in the background, unless that is under way for the address, and returns the
// channel that receives the result.
func (d *Dialer) begin(network, address string) <-chan dialed {
	d.mu.Lock()
	defer d.mu.Unlock()
	if under := d.dialing[address]; under != nil {
		return under
	}
	result := make(chan dialed)
	if d.dialing == nil {
		d.dialing = make(map[string]chan dialed)
	}
	d.dialing[address] = result
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), nats.DefaultTimeout)
		defer cancel()
		dial := d.DialContext
		if dial == nil {
			dial = dialAny
		}
		conn, err := dial(ctx, network, address)
		select {
		case result <- dialed{conn, err}:
		case <-time.After(dialKept):
			d.end(address)
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	return result
}

// end makes the next attempt at the address dial again.
func (d *Dialer) end(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.dialing, address)
}

// dialAny tries the addresses of a name in random order, as nats.go does, so that many
// clients spread over the servers that share the name.
func dialAny(ctx context.Context, network, address string) (conn net.Conn, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	all, _ := net.DefaultResolver.LookupHost(ctx, host) // the dial says why
	if len(all) == 0 {
		all = []string{host}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	dialer := net.Dialer{Timeout: nats.DefaultTimeout / time.Duration(len(all))}
	for _, ip := range all {
		if conn, err = dialer.DialContext(ctx, network, net.JoinHostPort(ip, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
