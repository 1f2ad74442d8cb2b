package embedded

import (
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATS bounds what waits to be sent to one connection, not to all of them. And
// close to that bound it lets whoever sends there wait, which here is the
// service: for one client that reads nothing, all others would wait. So a watch
// cuts off such a client before.

// Bounds of what waits in the server.
const (
	// maxUnread is what may wait for all clients. It is below three quarters of
	// maxPending, where senders begin to wait.
	maxUnread = maxPending / 2
	// maxUnserved is what may wait for one of our own connections. It is above
	// three quarters of maxPending, where those who send too much begin to wait,
	// and below where the server cuts the connection off, and with it all
	// requests.
	maxUnserved = maxPending / 5 * 4
	// maxConnections bounds what else connections take, each some 100 KiB.
	maxConnections = 4096
	// maxSubscriptions is for each connection.
	maxSubscriptions = 16384
)

// How often the watch looks: rarely enough that it takes about a fiftieth of its
// time at most.
const (
	watchInterval = 100 * time.Millisecond
	watchShare    = 50
	watchPause    = time.Second // at most

	// Where much waits for one of our own connections, it takes few of these
	// until the server cuts it off.
	watchClosely      = 10 * time.Millisecond
	watchCloselyShare = 4
)

type watch struct {
	*Server
	stop, stopped chan struct{}
	seen          map[uint64]int64 // messages from a connection at the last look
}

func (s *Server) startWatch() *watch {
	w := &watch{Server: s, stop: make(chan struct{}), stopped: make(chan struct{}), seen: make(map[uint64]int64)}
	go w.run()
	return w
}

func (w *watch) end() {
	close(w.stop)
	<-w.stopped
}

func (w *watch) run() {
	defer close(w.stopped)
	next := time.NewTimer(watchInterval)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			began := time.Now()
			interval, share := watchInterval, time.Duration(watchShare)
			if unserved := w.look(); unserved > maxUnserved/2 {
				interval, share = watchClosely, watchCloselyShare
			}
			next.Reset(min(max(interval, share*time.Since(began)), watchPause))
		case <-w.stop:
			return
		}
	}
}

// look cuts off who has most of what is not read, until the rest is not too
// much, and of those who send too much one: what that leaves shows at the next.
// It returns how much waits for one of our own connections.
func (w *watch) look() (waiting int64) {
	all, err := w.nats.Connz(&server.ConnzOptions{Username: true, Limit: 2 * maxConnections})
	if err != nil {
		return 0
	}
	seen := make(map[uint64]int64, len(all.Conns))
	var (
		unread           int64
		readers          []*server.ConnInfo
		sender           *server.ConnInfo // that sent most since
		unserved, sent   int64
		ours             *server.ConnInfo
		clientsSentSince = func(c *server.ConnInfo) int64 { return c.InMsgs - w.seen[c.Cid] }
	)
	for _, c := range all.Conns {
		seen[c.Cid] = c.InMsgs
		if c.AuthorizedUser != userClient {
			if pending := int64(c.Pending); pending > unserved {
				unserved, ours = pending, c
			}
			continue
		}
		unread += int64(c.Pending)
		if c.Pending > 0 {
			readers = append(readers, c)
		}
		if n := clientsSentSince(c); n > sent {
			sender, sent = c, n
		}
	}
	w.seen = seen
	slices.SortFunc(readers, func(a, b *server.ConnInfo) int { return b.Pending - a.Pending })
	for ; unread > maxUnread; readers = readers[1:] {
		w.cutOff(readers[0], "a client was cut off: it does not read what it is sent", "unread", readers[0].Pending)
		unread -= int64(readers[0].Pending)
	}
	if unserved > maxUnserved && sender != nil {
		w.cutOff(sender, "a client was cut off: it sends more than can be answered", "messages", sent, "waiting", unserved, "for", ours.Name)
	}
	return unserved
}

func (w *watch) cutOff(c *server.ConnInfo, why string, args ...any) {
	w.log.Warn(why, append(args, "client", c.Name, "address", c.IP, "port", c.Port)...)
	_ = w.nats.DisconnectClientByID(c.Cid) // else it has gone by itself
}
