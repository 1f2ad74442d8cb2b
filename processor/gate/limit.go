package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// Limits of the consumers of a log. The NATS server's own limit, 1000 by default,
// counts those of lapse, too: without a lower limit for clients, lapse could not read.
//
// A gate creates one at a time, so several gates exceed a limit by one each at most.
const (
	maxConsumers = 512
	maxReaders   = 128 // short-lived ones, see schema.ReaderConsumer
	maxOfAccount = 128 // of both, that one importing account created

	// neededConsumers is the limit that the NATS server needs, with those of lapse.
	neededConsumers = maxConsumers + maxReaders + 64
)

// full returns the error if a limit of consumers is reached, nil if not. names are all
// consumers of the log. A consumer that exists does not count twice.
func (g *Gate) full(ctx context.Context, log string, names []string, name, account string) error {
	readers := 0
	for _, name := range names {
		if strings.HasPrefix(name, schema.ReaderConsumer) {
			readers++
		}
	}
	of, n, limit := "consumers of clients", len(names)-readers, maxConsumers
	if strings.HasPrefix(name, schema.ReaderConsumer) {
		of, n, limit = "short-lived readers", readers, maxReaders
	}
	if account != "" && n < limit && len(names) >= maxOfAccount {
		var err error
		of, limit = "consumers of account "+account, maxOfAccount
		if n, err = g.countOf(ctx, log, account); err != nil {
			return err
		}
	}
	if n < limit {
		return nil
	}
	// At the limit a request for a consumer that exists still passes: clients send one at
	// each start.
	if there, err := g.exists(ctx, log, name); there || err != nil {
		return err
	}
	e := *server.NewJSMaximumConsumersLimitError()
	e.Description = fmt.Sprintf("%s: %s has %d %s, and %d are allowed: remove those that nobody uses (nats consumer ls %[2]s, nats consumer rm), "+
		"use one durable for each application, and give others an inactive_threshold", e.Description, log, n, of, limit)
	return &e
}

// consumers returns the names of the consumers of a log except lapse's own.
func (g *Gate) consumers(ctx context.Context, log string) (names []string, err error) {
	for seen := 0; ; {
		var page server.JSApiConsumerNamesResponse
		err := g.askJSON(ctx, "$JS.API.CONSUMER.NAMES."+log, fmt.Appendf(nil, `{"offset":%d}`, seen), &page)
		if err == nil && page.Error != nil {
			err = page.Error
		}
		if err != nil {
			return nil, err
		}
		for _, name := range page.Consumers {
			if !isServers(name) {
				names = append(names, name)
			}
		}
		if seen += len(page.Consumers); len(page.Consumers) == 0 || seen >= page.Total {
			return names, nil
		}
	}
}

// countOf counts the consumers of a log that an account created. It reads the infos of all,
// page by page, which is why full asks only once there are enough to reach the limit.
func (g *Gate) countOf(ctx context.Context, log, account string) (n int, err error) {
	for seen := 0; ; {
		var page server.JSApiConsumerListResponse
		err := g.askJSON(ctx, "$JS.API.CONSUMER.LIST."+log, fmt.Appendf(nil, `{"offset":%d}`, seen), &page)
		if err == nil && page.Error != nil {
			err = page.Error
		}
		if err != nil {
			return 0, err
		}
		for _, c := range page.Consumers {
			if c.Config != nil && c.Config.Metadata[schema.ConsumerAccount] == account {
				n++
			}
		}
		listed := len(page.Consumers) + len(page.Missing)
		if seen += listed; listed == 0 || seen >= page.Total {
			return n, nil
		}
	}
}

// exists reports whether a log has a consumer.
func (g *Gate) exists(ctx context.Context, log, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	info, err := g.info(ctx, log, name)
	return err == nil && info.Error == nil, err
}

// info returns JetStream's info of a consumer; its Error is set if there is none.
func (g *Gate) info(ctx context.Context, log, name string) (info server.JSApiConsumerInfoResponse, err error) {
	err = g.askJSON(ctx, "$JS.API.CONSUMER.INFO."+log+"."+name, nil, &info)
	return info, err
}

// askJSON is ask for a reply that is read as JSON.
func (g *Gate) askJSON(ctx context.Context, subject string, body []byte, answer any) error {
	m, err := g.ask(ctx, &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, answer)
}
