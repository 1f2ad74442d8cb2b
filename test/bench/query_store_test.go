package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
)

// store holds orders and answers queries about them, from several callers.
type store interface {
	// customer fetches the orders of a customer and returns their number.
	customer(caller int, name string) (found int, err error)
	// scan scans all orders and fetches those that meet heavyWhere.
	scan() (scanned, found int, err error)
}

// lapseStore is lapse as a store: a function that answers the body of a query.
type lapseStore func(caller int, body string) (reply []byte, err error)

// ways are the ways to query lapse, in the order in which they are measured beside
// SQLite. name is that of the benchmarks.
var ways = []struct {
	name string
	open func(b *testing.B, l *loaded) (ask lapseStore, process int) // PID of the process that answers, 0 for this one
}{
	{"requests", func(_ *testing.B, l *loaded) (lapseStore, int) { return l.query, l.PID() }},
	{"in-process", inProcess}, // the last one, since it stops lapse
}

// inProcess queries the engine by a function call, as SQLite is
// queried. It stops the processor and opens its projection, so other ways fail from then
// on.
func inProcess(b *testing.B, l *loaded) (lapseStore, int) {
	l.Stop()
	projection, err := projections.Open(filepath.Join(l.Dir, "projection", "main"), projections.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := projection.Close(); err != nil {
			b.Error(err)
		}
	})
	engine, err := query.New(query.Options{Secret: make([]byte, 32)})
	if err != nil {
		b.Fatal(err)
	}
	const room = 4 << 20
	now := func(int64) int64 { return time.Now().Unix() }
	return func(_ int, body string) ([]byte, error) {
		reply, err := engine.Answer(context.Background(), projection, query.Ask{Collection: ordersCollection, Body: []byte(body), Now: now, Room: room})
		return reply.Body, err
	}, 0
}

func (ask lapseStore) customer(caller int, name string) (int, error) {
	reply, err := ask(caller, customerQuery(name))
	return documents(reply), err
}

func customerQuery(name string) string {
	return fmt.Sprintf(`{"where":"doc.customer == params.c","params":{"c":%q}}`, name)
}

// explained is the reply to a query with explain.
type explained struct {
	Documents []json.RawMessage `json:"documents"`
	Cursor    string            `json:"cursor"`
	Count     int               `json:"count"`
	Plan      struct {
		Index   *string `json:"index"`
		Scanned int     `json:"scanned"`
	} `json:"plan"`
}

func (ask lapseStore) explain(body string) (reply explained, err error) {
	text, err := ask(0, body)
	if err == nil {
		err = json.Unmarshal(text, &reply)
	}
	return reply, err
}

// heavyQuery has a limit above the number of matches, so that it scans everything.
var heavyQuery = fmt.Sprintf(`{"where":%q,"limit":1000,"explain":true}`, heavyWhere)

func (ask lapseStore) scan() (scanned, found int, err error) {
	reply, err := ask.explain(heavyQuery)
	if err == nil && reply.Plan.Index != nil {
		err = fmt.Errorf("the scan goes by the index on %s", *reply.Plan.Index)
	}
	if err == nil && reply.Cursor != "" {
		err = errors.New("the scan ends before the end")
	}
	return reply.Plan.Scanned, len(reply.Documents), err
}

var sizableQuery = fmt.Sprintf(`{"where":%q,"count":true,"explain":true}`, sizableWhere)

// count counts the sizable orders by an index.
func (ask lapseStore) count() (int, error) {
	reply, err := ask.explain(sizableQuery)
	if err == nil && (reply.Plan.Index == nil || *reply.Plan.Index != "/total") {
		err = errors.New("the count does not go by the index on /total")
	}
	return reply.Count, err
}
