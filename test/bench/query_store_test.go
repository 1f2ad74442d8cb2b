package bench

import (
	"encoding/json"
	"errors"
	"fmt"
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
