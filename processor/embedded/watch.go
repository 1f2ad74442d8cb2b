package embedded

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATS limits the bytes pending for one connection, not for all of them. Close to that
// limit it makes their senders wait, here the service: for one client that reads nothing,
// all others would wait. So a watch disconnects such a client before. It also limits
// subscriptions: NATS limits only their number per connection, not their total or size.

// Limits of the memory that clients take.
const (
	// maxUnread is the default of Options.Unread: below three quarters of
	// maxPending, where senders begin to wait.
	maxUnread = maxPending / 4
	// maxUnserved limits the bytes pending for one of our own connections. It is above
	// three quarters of maxPending, where heavy senders begin to wait, and below the
	// limit at which the server cuts the connection off, and with it all requests.
	maxUnserved = maxPending / 5 * 4
	// maxConnections bounds the other memory of connections, some 100 KiB each.
	maxConnections = 4096
	// authTimeout is how long a connection may take to log in. NATS gives it 2 s, which
	// clients on a busy machine exceed.
	authTimeout = 10 * time.Second
	// maxSubscriptions is for each connection, maxTokens for each subject: a token costs
	// the server as much as the rest of a subscription.
	maxSubscriptions = 2048
	maxTokens        = 8
	// maxSubscribed limits the memory of all clients' subscriptions. Up to
	// fewSubscriptions they cannot exceed it, and the watch does not measure them.
	maxSubscribed    = 128 << 20
	fewSubscriptions = maxSubscribed / (maxTokens*tokenBytes + 4096*textBytes)
	// Memory for a token and a byte of text of a subscription. NATS keeps three of each:
	// one in the account of the clients, and one for each import of messages from the
	// account of the streams.
	tokenBytes = 1100
	textBytes  = 6
)

// Intervals of the watch: checking takes about a fiftieth of its time at most.
const (
	watchInterval = 100 * time.Millisecond
	watchShare    = 50
	watchPause    = time.Second // at most

	// When much is pending, the server may be few of these intervals from cutting off
	// the connection that it is pending for.
	watchClosely      = 10 * time.Millisecond
	watchCloselyShare = 4
)

// watch keeps clients from taking all memory. It looks at the list of connections every
// watchInterval, more often when a limit is near, and disconnects the one that takes most.
// A client that is disconnected reconnects and loses what was pending, which the feed sends
// again; memory that is exhausted would end the process for all.
type watch struct {
	*Server
	seen          map[uint64]int64 // bytes from a connection at the last check
	subscriptions int              // of clients at the last check
}

// startWatch watches until end is called.
func (s *Server) startWatch() (end func()) {
	w := &watch{Server: s, seen: make(map[uint64]int64)}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { w.run(ctx) })
	return func() { cancel(); watching.Wait() }
}

// run enforces the limits until ctx ends. Looking costs in proportion to the number of
// connections, so the pause is a multiple of the time that the last look took.
func (w *watch) run(ctx context.Context) {
	next := time.NewTimer(watchInterval)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			began := time.Now()
			interval, share := watchInterval, time.Duration(watchShare)
			if w.enforce() {
				interval, share = watchClosely, watchCloselyShare
			}
			next.Reset(min(max(interval, share*time.Since(began)), watchPause))
		case <-ctx.Done():
			return
		}
	}
}

// enforce closes the connections of the clients with the most pending bytes, of those that
// sent most since the last check if too much is unserved, and of those with the largest
// subscriptions, until the limits hold. It reports whether much is pending, or many
// subscriptions are new: the next look is then soon.
//
// Unserved is what the server holds for lapse's own connections. Those are never closed;
// whoever fills them is.
func (w *watch) enforce() (much bool) {
	all, err := w.nats.Connz(&server.ConnzOptions{Username: true, Limit: 2 * maxConnections})
	if err != nil {
		return false
	}
	seen := make(map[uint64]int64, len(all.Conns))
	var (
		unread, unserved int64
		subscriptions    int
		readers, senders []*server.ConnInfo
		ours             *server.ConnInfo
		sent             = func(c *server.ConnInfo) int64 { return c.InBytes - w.seen[c.Cid] }
	)
	for _, c := range all.Conns {
		seen[c.Cid] = c.InBytes
		if !isClient(c) {
			if pending := int64(c.Pending); pending > unserved {
				unserved, ours = pending, c
			}
			continue
		}
		subscriptions += int(c.NumSubs)
		unread += int64(c.Pending)
		if c.Pending > 0 {
			readers = append(readers, c)
		}
		if sent(c) > 0 {
			senders = append(senders, c)
		}
	}
	slices.SortFunc(readers, func(a, b *server.ConnInfo) int { return b.Pending - a.Pending })
	for ; unread > w.options.Unread; readers = readers[1:] {
		w.disconnect(readers[0], "a client was disconnected: it does not read what it is sent", "unread", readers[0].Pending)
		unread -= int64(readers[0].Pending)
	}
	slices.SortFunc(senders, func(a, b *server.ConnInfo) int { return cmp.Compare(sent(b), sent(a)) })
	for over := unserved - maxUnserved; over > 0 && len(senders) > 0; senders = senders[1:] {
		w.disconnect(senders[0], "a client was disconnected: it sends more than can be answered", "bytes", sent(senders[0]), "waiting", unserved, "for", ours.Name)
		over -= sent(senders[0])
	}
	w.seen = seen
	added := subscriptions - w.subscriptions
	w.subscriptions = subscriptions
	if subscriptions > fewSubscriptions {
		w.lookAtSubscriptions()
	}
	return unserved > maxUnserved/4 || unread > w.options.Unread/2 || subscriptions > fewSubscriptions && added > 0
}

// isClient reports whether a connection is a client's: also one of an account of the user's
// file, or of the operator.
func isClient(c *server.ConnInfo) bool {
	return c.AuthorizedUser == userClient || !slices.Contains(ownUsers, c.AuthorizedUser)
}

// lookAtSubscriptions cuts off the clients with the largest subscriptions until the rest is
// within maxSubscribed. It asks for every subscription of every client, which is why it
// runs only above fewSubscriptions.
func (w *watch) lookAtSubscriptions() {
	all, err := w.nats.Connz(&server.ConnzOptions{Username: true, SubscriptionsDetail: true, Limit: 2 * maxConnections})
	if err != nil {
		return
	}
	var (
		clients []*server.ConnInfo
		takes   = make(map[uint64]int)
		sum     int
	)
	for _, c := range all.Conns {
		if !isClient(c) {
			continue
		}
		for _, sub := range c.SubsDetail {
			takes[c.Cid] += (1+strings.Count(sub.Subject, "."))*tokenBytes + (len(sub.Subject)+len(sub.Queue)+len(sub.Sid))*textBytes
		}
		sum += takes[c.Cid]
		clients = append(clients, c)
	}
	slices.SortFunc(clients, func(a, b *server.ConnInfo) int { return takes[b.Cid] - takes[a.Cid] })
	for ; sum > maxSubscribed; clients = clients[1:] {
		w.disconnect(clients[0], "a client was disconnected: all clients' subscriptions use too much memory, and its own use most", "subscriptions", clients[0].NumSubs, "bytes", takes[clients[0].Cid])
		sum -= takes[clients[0].Cid]
	}
}

// disconnect closes a client's connection, and logs whose and why.
func (w *watch) disconnect(c *server.ConnInfo, why string, args ...any) {
	w.log.Warn(why, append(args, "client", c.Name, "address", c.IP, "port", c.Port)...)
	_ = w.nats.DisconnectClientByID(c.Cid) // else it has gone by itself
}
