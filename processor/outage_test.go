package processor_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/test/stress"
)

// fault is a failure while the processor runs.
type fault struct {
	name  string
	begin func(*processortest.Outage)
}

var faults = []fault{
	{"the server restarts", func(o *processortest.Outage) { o.RestartServer(0) }},
	{"the server is away", func(o *processortest.Outage) { o.RestartServer(time.Duration(o.Random.IntN(20000)) * time.Millisecond) }},
	{"the log's connection breaks", func(o *processortest.Outage) { o.LogNet.Each(func(c *processortest.FaultyConn) { c.Close() }) }},
	{"the log hears nothing", func(o *processortest.Outage) { o.LogNet.Each(func(c *processortest.FaultyConn) { c.Deaf.Store(true) }) }},
	{"the log says nothing", func(o *processortest.Outage) { o.LogNet.Each(func(c *processortest.FaultyConn) { c.Mute.Store(true) }) }},
	{"the log is cut off", func(o *processortest.Outage) {
		o.LogNet.Each(func(c *processortest.FaultyConn) { c.Mute.Store(true); c.Deaf.Store(true) })
	}},
	{"acknowledgements are lost with the connection", func(o *processortest.Outage) {
		o.LogNet.Each(func(c *processortest.FaultyConn) {
			c.Deaf.Store(true)
			time.Sleep(time.Duration(o.Random.IntN(3000)) * time.Millisecond)
			c.Close()
		})
	}},
	{"the service's connection breaks", func(o *processortest.Outage) { o.ServiceNet.Each(func(c *processortest.FaultyConn) { c.Close() }) }},
	{"the service hears nothing", func(o *processortest.Outage) {
		o.ServiceNet.Each(func(c *processortest.FaultyConn) { c.Deaf.Store(true) })
	}},
	{"the service says nothing", func(o *processortest.Outage) {
		o.ServiceNet.Each(func(c *processortest.FaultyConn) { c.Mute.Store(true) })
	}},
	{"both are cut off", func(o *processortest.Outage) {
		for _, n := range []*processortest.Network{&o.LogNet, &o.ServiceNet} {
			n.Each(func(c *processortest.FaultyConn) { c.Mute.Store(true); c.Deaf.Store(true) })
		}
	}},
}

// losesReplies loses the replies to the first request of each kind that is sent to n: the
// connections of the log receive nothing from then on, until pings time out. lost counts
// the kinds that were sent.
func losesReplies(o *processortest.Outage, n *processortest.Network, requests ...string) (lost func() int) {
	var mu sync.Mutex
	unseen := slices.Clone(requests)
	n.Intercept(func(sent []byte) {
		mu.Lock()
		defer mu.Unlock()
		unseen = slices.DeleteFunc(unseen, func(request string) bool {
			is := bytes.Contains(sent, []byte(request))
			if is {
				o.LogNet.Each(func(c *processortest.FaultyConn) { c.Deaf.Store(true) })
			}
			return is
		})
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(requests) - len(unseen)
	}
}

// startLoad starts writers and a publisher.
func startLoad(o *processortest.Outage, writers int, pause time.Duration) *load {
	l := newLoad(o.Wire, o.Random, pause)
	l.start(0, writers)
	random := rand.New(rand.NewPCG(o.Random.Uint64(), 1))
	l.wg.Go(func() { l.publish(random) })
	return l
}

// recovery is the longest time after a fault until writes succeed again: the connection
// is given up and made again, and the log is read.
const recovery = 40 * time.Second

// TestOutages: under load the NATS server restarts, connections break or are half open,
// and acknowledgements are lost. The processor recovers on its own: the log has every
// acknowledged write once, and no other write twice.
func TestOutages(t *testing.T) {
	for _, durability := range []processor.Durability{processor.OS, processor.Fsync} {
		t.Run(string(durability), func(t *testing.T) {
			processortest.InOutage(t, durability, func(o *processortest.Outage) {
				o.Want(201, "collection.create.load", `{"defaultTtl":60}`)
				l := startLoad(o, 6, 300*time.Millisecond)
				// Each fault; in long runs then server restarts.
				kinds := o.Random.Perm(len(faults))
				for i := range stress.Pick(len(faults)+3, 100+5*len(faults)) {
					f := faults[0]
					if i < 5*len(faults) {
						f = faults[kinds[i%len(faults)]]
					}
					time.Sleep(time.Duration(o.Random.IntN(3000)) * time.Millisecond)
					f.begin(o)
					l.probe(f.name, i)
				}
				l.finish()
			})
		})
	}
}

// TestStartRetriesLostReply: a start succeeds although a request after its first ones gets no
// reply.
func TestStartRetriesLostReply(t *testing.T) {
	processortest.InOutage(t, processor.OS, func(o *processortest.Outage) {
		o.Want(201, "collection.create.c", `{}`)
		o.Stop()
		// A start opens the streams, looks for other processors, then reads the log.
		lost := losesReplies(o, &o.ServiceNet, "$SRV.PING.lapse ")
		var err error
		o.Processor, err = processor.Start(o.T.Context(), o.Connections(), o.Options)
		o.Check(err)
		if lost() == 0 {
			o.T.Error("nothing went wrong")
		}
		o.Want(200, "collection.get.c", "")
	})
}

// TestRestoreRetriesLostReply: a restore with a new log succeeds although the replies to the
// creation of the log and of its snapshot are lost.
func TestRestoreRetriesLostReply(t *testing.T) {
	processortest.InOutage(t, processor.OS, func(o *processortest.Outage) {
		o.Want(201, "collection.create.c", `{}`)
		o.Want(201, "document.create.c.a", `{}`)
		digest, seq := o.Inside().Store.Digest(), o.Processor.Seq()
		o.Want(201, "snapshot.create", "")
		o.Stop()
		js, err := jetstream.New(o.Client)
		o.Check(err)
		o.Check(js.DeleteStream(o.Ctx(), "LAPSE_main"))
		lost := losesReplies(o, &o.LogNet, "$JS.API.STREAM.CREATE.LAPSE_main ", "$JS.API.STREAM.CREATE.OBJ_LAPSE_main_SNAPSHOT_3 ")
		snapshot, err := processor.RestoreSnapshot(o.T.Context(), o.Connections(), o.Options, 0, true)
		o.Check(err)
		if snapshot.Seq != seq || snapshot.Digest != digest.String() || lost() != 2 {
			o.T.Errorf("it restored %+v, and was at %d with digest %s; the replies of %d requests were lost", snapshot, seq, digest, lost())
		}
		o.Start()
		o.Want(200, "document.get.c.a", "")
		o.Want(201, "document.create.c.b", "{}")
	})
}
