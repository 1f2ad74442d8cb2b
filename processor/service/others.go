package service

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/schema"
)

// othersTimeout is how long others are waited for that serve the database. They
// answer in milliseconds.
const othersTimeout = 300 * time.Millisecond

// CheckOthers refuses to answer requests beside a lapse that answers them for
// another log: clients would get the one or the other, by chance.
func CheckOthers(ctx context.Context, nc *nats.Conn, db schema.DatabaseName, log string) error {
	return askOthers(ctx, nc, db, func(info micro.Info) error {
		if theirs, ok := info.Metadata[metaLog]; !ok || theirs == log {
			return nil
		}
		return fmt.Errorf("another lapse serves a database %s that is not this one, with a log of its own: serve another --database, or stop that one", db)
	})
}

// CheckNobody refuses to take the log away from a lapse that serves it.
func CheckNobody(ctx context.Context, nc *nats.Conn, db schema.DatabaseName) error {
	return askOthers(ctx, nc, db, func(info micro.Info) error {
		return fmt.Errorf("a lapse serves database %s, as the %s: stop all that do before its log is begun anew", db, info.Metadata[metaRole])
	})
}

// askOthers asks all who serve a database what they are, until the first error.
func askOthers(ctx context.Context, nc *nats.Conn, db schema.DatabaseName, check func(micro.Info) error) error {
	// Those who answer may publish to inboxes and below $SRV., and this
	// connection may listen only there.
	inbox := micro.APIPrefix + ".REPLY." + nuid.Next()
	replies := make(chan *nats.Msg, 64)
	sub, err := nc.ChanSubscribe(inbox, replies)
	if err != nil {
		return fmt.Errorf("ask for others: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(micro.APIPrefix+".INFO.lapse", inbox, nil); err != nil {
		return fmt.Errorf("ask for others: %w", err)
	}
	timeout := time.NewTimer(othersTimeout)
	defer timeout.Stop()
	for {
		select {
		case m := <-replies:
			if m.Header.Get("Status") != "" {
				return nil // there is nobody
			}
			var info micro.Info
			if err := json.Unmarshal(m.Data, &info); err != nil || info.Metadata[metaDatabase] != string(db) {
				continue
			}
			if err := check(info); err != nil {
				return err
			}
		case <-timeout.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
