package eventlog

import (
	"context"
	"net/url"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// KeepTogether has connections go to the NATS server that another one, lead, is
// connected to, until ctx ends. A server that is cut off from its cluster keeps
// those who are there: a processor whose lead can write the log and whose others
// are there would be the writer that nobody reaches. Together they are all of use
// or none, and lead finds that out. A connection that does not know lead's server
// stays where it is.
func KeepTogether(ctx context.Context, lead *nats.Conn, others ...*nats.Conn) {
	var keeping sync.WaitGroup
	for _, nc := range others {
		keeping.Go(func() { keepWith(ctx, lead, nc) })
	}
	keeping.Wait()
}

func keepWith(ctx context.Context, lead, nc *nats.Conn) {
	leads, connects := lead.StatusChanged(nats.CONNECTED), nc.StatusChanged(nats.CONNECTED)
	defer lead.RemoveStatusListener(leads)
	defer nc.RemoveStatusListener(connects)
	for moves := 0; ; {
		switch {
		case hostOf(lead) == hostOf(nc):
			moves = 0
		case apart(lead, nc) && moves < len(nc.ServerPool()):
			moves++
			_ = nc.ForceReconnect() // to the next server that it knows, or it is closed
		}
		select {
		case <-leads:
			moves = 0
		case <-connects:
		case <-ctx.Done():
			return
		}
	}
}

// bringTo has nc go to lead's server, as KeepTogether does, and waits for that
// unless ctx ends before.
func BringTo(ctx context.Context, lead, nc *nats.Conn) {
	connects := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(connects)
	for range len(nc.ServerPool()) {
		if !apart(lead, nc) || nc.ForceReconnect() != nil {
			return
		}
		select {
		case <-connects:
		case <-ctx.Done():
			return
		}
	}
}

// apart tells whether nc is connected to another server than lead, which it knows.
func apart(lead, nc *nats.Conn) bool {
	to, at := hostOf(lead), hostOf(nc)
	return to != "" && at != "" && to != at &&
		slices.ContainsFunc(nc.ServerPool(), func(s nats.Server) bool { return s.URL != nil && s.URL.Host == to })
}

// hostOf is host and port of the server that nc is connected to, "" if it is not.
func hostOf(nc *nats.Conn) string {
	u, err := url.Parse(nc.ConnectedUrl())
	if err != nil {
		return ""
	}
	return u.Host
}
