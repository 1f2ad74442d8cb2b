package service

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"
)

// Settlement is up to which second a state is settled: see Liveness.
type Settlement struct {
	Second int64  `json:"second"` // unix
	Seq    uint64 `json:"seq"`    // of the state
}

// settledSubject is where standbys ask the writer for its settlement.
func (s *Service) settledSubject() string {
	return micro.APIPrefix + ".SETTLED.lapse." + string(s.Config.Database)
}

// AskWriter asks the writer up to where it has settled the state. It takes at most
// expiryGrace, and fails if no process answers as the writer.
func (s *Service) AskWriter(ctx context.Context) (state Settlement, err error) {
	ctx, cancel := context.WithTimeout(ctx, expiryGrace)
	defer cancel()
	inbox := peerInbox + nuid.Next() // which nobody else knows
	sub, err := s.NC.SubscribeSync(inbox)
	if err != nil {
		return state, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := s.NC.PublishRequest(s.settledSubject(), inbox, nil); err != nil {
		return state, err
	}
	m, err := sub.NextMsgWithContext(ctx)
	if err == nil {
		err = json.Unmarshal(m.Data, &state) // there is no data if nobody is there
	}
	return state, err
}

// vouch answers AskWriter, or says nothing if another process may write.
func (s *Service) vouch(m *nats.Msg) {
	// In this order: what leaves the table is folded.
	second := s.Writer.Renewals.Settled(s.Live.Now())
	text, err := json.Marshal(Settlement{second, s.Store.Cursor().Seq})
	if err == nil && s.OnlyWriter() {
		_ = m.Respond(text) // or there is no connection
	}
}
