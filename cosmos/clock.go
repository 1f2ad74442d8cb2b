package cosmos

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"time"
)

// maxAdvance is the most seconds of one move of a clock.
const maxAdvance = 1 << 40

// clock shows or moves the clocks of a server for tests. Request and reply of
// /_lapse/clock, which is no part of Cosmos DB:
//
//	GET   /_lapse/clock                                  {"now":1431857103}
//	POST  /_lapse/clock  {"advance":2592000}             {"now":1434449103}
//	POST  /_lapse/clock?database=salesdb  {"advance":5}  {"now":1434449108}
func (x *exchange) clock() (*reply, error) {
	if !x.options.Test {
		return nil, notFound("only lapse test moves clocks")
	}
	switch x.Method {
	case http.MethodGet:
		return x.showClock()
	case http.MethodPost:
		return x.moveClocks()
	}
	return nil, x.wrongMethod()
}

// showClock shows the latest time that a clock of a database has.
func (x *exchange) showClock() (*reply, error) {
	_, now, err := x.latest()
	if err != nil {
		return nil, err
	}
	return &reply{status: http.StatusOK, body: fmt.Appendf(nil, `{"now":%d}`, now.Unix())}, nil
}

// moveClocks moves the clock of the database that the request names, or of all. Databases
// move one after the other, so an error leaves those before it moved.
func (x *exchange) moveClocks() (*reply, error) {
	// A web page can't send this type to another site without asking.
	if kind, _, err := mime.ParseMediaType(x.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, faultf(http.StatusUnsupportedMediaType, "send content-type: application/json")
	}
	var move struct{ Advance *int64 }
	if err := json.Unmarshal(x.body, &move); err != nil || move.Advance == nil || *move.Advance < 0 || *move.Advance > maxAdvance {
		return nil, badRequest(`send {"advance":s}, a number of seconds from 0 on`)
	}
	names, err := x.options.Databases(x)
	if id := x.URL.Query().Get("database"); id != "" && err == nil {
		var name string
		name, err = nameOf(id)
		names = []string{name}
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		db, err := x.database(name)
		if err == nil {
			err = advance(x, db, *move.Advance)
		}
		if err != nil {
			return nil, err
		}
	}
	return x.showClock()
}

// advance moves a clock as far as asked; a length of time in Go ends at 292 years.
func advance(x *exchange, db *database, seconds int64) error {
	clock := db.client.TestClock()
	now, err := clock.Now(x)
	if err == nil {
		_, err = clock.AdvanceTo(x, time.UnixMilli(now.UnixMilli()+seconds*1000))
	}
	return err
}
