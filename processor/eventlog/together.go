package eventlog

import (
	"context"
	"net/url"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// KeepTogether moves connections to the NATS server that lead is connected to, until
// ctx ends. A server that is partitioned from its cluster keeps its clients: if only
// others were connected there, the processor would be a writer that no client reaches.
// On one server they all work or all fail, and lead notices. A connection that does not
// know lead's server stays.
func KeepTogether(ctx context.Context, lead *nats.Conn, others ...*nats.Conn) {
	var keeping sync.WaitGroup
	for _, nc := range others {
		keeping.Go(func() { keepWith(ctx, lead, nc) })
	}
	keeping.Wait()
}

// keepWith is KeepTogether for one connection. It moves it at most as often as there are
// servers, until lead connects again or the two are together.
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
			_ = nc.ForceReconnect() // to the next server that it knows; fails only if it is closed
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

// BringTo moves nc to lead's server, as KeepTogether does, and waits for it or ctx.
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

// apart reports whether nc is connected to another server than lead and knows lead's.
func apart(lead, nc *nats.Conn) bool {
	to, at := hostOf(lead), hostOf(nc)
	return to != "" && at != "" && to != at &&
		slices.ContainsFunc(nc.ServerPool(), func(s nats.Server) bool { return s.URL != nil && s.URL.Host == to })
}

// hostOf returns host:port of the server that nc is connected to; "" if none.
func hostOf(nc *nats.Conn) string {
	u, err := url.Parse(nc.ConnectedUrl())
	if err != nil {
		return ""
	}
	return u.Host
}
