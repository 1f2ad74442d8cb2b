package peers

import (
	"context"
	"crypto/rand"
	"encoding/json"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// Settlement is a state and the second up to which it is settled: see Liveness.
type Settlement struct {
	Second int64  `json:"second"` // unix
	Seq    uint64 `json:"seq"`    // of the state
}

// settledSubject returns the subject at which standbys ask the writer for its settlement.
func (p *Peers) settledSubject() string {
	return micro.APIPrefix + ".SETTLED.lapse." + string(p.Database)
}

// askWriter asks the writer for its settlement. It takes at most expiryGrace, and fails
// if no process answers as the writer.
func (p *Peers) askWriter(ctx context.Context) (state Settlement, err error) {
	ctx, cancel := context.WithTimeout(ctx, expiryGrace)
	defer cancel()
	inbox := peerInbox + rand.Text() // unknown to other clients
	sub, err := p.nc.SubscribeSync(inbox)
	if err != nil {
		return state, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := p.nc.PublishRequest(p.settledSubject(), inbox, nil); err != nil {
		return state, err
	}
	m, err := sub.NextMsgWithContext(ctx)
	if err == nil {
		err = json.Unmarshal(m.Data, &state) // fails on "no responders", which has no data
	}
	return state, err
}

// vouch answers askWriter, or does not reply if another process may write.
func (p *Peers) vouch(m *nats.Msg) {
	// The cursor is read last: a renewal that has left the table is folded in it.
	second := p.Renewals.Settled(p.Liveness.Now())
	text, err := json.Marshal(Settlement{second, p.Store.Cursor().Seq})
	if err == nil && p.OnlyWriter() {
		_ = m.Respond(text) // or there is no connection
	}
}
