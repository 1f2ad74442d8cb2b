package gate

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// owner is who creates a consumer, as far as NATS tells: an account that imports from the
// gate, or, in the gate's own account, auditors or all others.
type owner struct{ account, by string }

// senderOf returns who sends a request.
func senderOf(m *nats.Msg) owner {
	if account := accountOf(m); account != "" || !isAuditor(m.Reply) {
		return owner{account: account}
	}
	return owner{by: schema.Auditor}
}

// ownerOf returns who created a consumer, by its metadata.
func ownerOf(metadata map[string]string) owner {
	return owner{metadata[schema.ConsumerAccount], metadata[madeBy]}
}

// mark writes the owner into the metadata of a consumer, whatever a client wrote there.
func (o owner) mark(c *server.ConsumerConfig) {
	for key, value := range map[string]string{schema.ConsumerAccount: o.account, madeBy: o.by} {
		delete(c.Metadata, key)
		if value == "" {
			continue
		}
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[key] = value
	}
}

// delivery is where a consumer delivers, "" for nowhere or unknown, and who created it.
type delivery struct {
	to string
	by owner
}

const (
	// knownFor bounds how old a cached delivery is. NATS removes inactive consumers, whose
	// names may come again.
	knownFor = time.Minute
	// deliveryTimeout is for consumers whose node does not reply: those deliver nothing.
	deliveryTimeout = 2 * time.Second
)

// taken reports whether a consumer of another owner delivers where c would. names are all
// consumers of the log. It asks for each that it does not know, since JetStream takes 4 s to
// list them while a node does not reply. The caller holds g.creating.
func (g *Gate) taken(ctx context.Context, log string, names []string, c *server.ConsumerConfig, by owner) bool {
	if now := time.Now(); now.Sub(g.delivering) > knownFor {
		g.deliveries.Clear()
		g.delivering = now
	}
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, name := range names {
		if _, known := g.deliveries.Load(log + "." + name); known {
			continue
		}
		asking.Go(func() {
			if info, err := g.info(ctx, log, name); err != nil {
				g.deliveries.Store(log+"."+name, delivery{})
			} else if info.ConsumerInfo != nil { // else it is new, or gone
				g.deliveries.Store(log+"."+name, delivery{info.Config.DeliverSubject, ownerOf(info.Config.Metadata)})
			}
		})
	}
	asking.Wait()
	return slices.ContainsFunc(names, func(name string) bool {
		d, _ := g.deliveries.Load(log + "." + name)
		other, known := d.(delivery)
		return known && name != c.Name && other.to == c.DeliverSubject && other.by != by
	})
}

var errTaken = errors.New("deliver_subject is that of a consumer of somebody else: use an inbox of your own with a random name, as client libraries make")
