package cosmos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/cosmos/sql"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// database is a database that a request has named. A database has a connection of its own,
// since a client of lapse is bound to one database. It stays until 256 others were used
// since, or the gateway ends.
//
// Locks: mu guards the fields after it, for a moment. Requests use the client without it.
type database struct {
	name    string
	client  *client.Client
	hangUp  func()
	seen    atomic.Uint64   // highest log sequence in a reply
	running context.Context // until close
	shut    context.CancelFunc
	tails   sync.WaitGroup // that run

	mu         sync.Mutex
	containers map[string]*container // by name, for maxAge after the read
	tail       *tail                 // of the log, nil before the first request of a change feed
}

// close ends the tail, and closes the connection. New tails begin under mu only while running
// is not done, so none begins after Wait.
func (db *database) close() {
	db.mu.Lock()
	db.shut()
	db.mu.Unlock()
	db.tails.Wait()
	db.hangUp()
}

// see notes the log sequence in a reply: what is read later includes it.
func (db *database) see(seq uint64) {
	for seen := db.seen.Load(); seq > seen && !db.seen.CompareAndSwap(seen, seq); {
		seen = db.seen.Load()
	}
}

// evict drops a container from the cache.
func (db *database) evict(container string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.containers, container)
}

// nameOf returns the name in lapse for the id of a database.
func nameOf(id string) (string, error) {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == '_' || r == '.' || r == ' ':
			return '-'
		}
		return r
	}, id)
	if _, err := schema.ParseDatabaseName(name); err != nil {
		return "", badRequest("the database id %.80q makes no name in lapse: use up to 32 letters, digits, - _ . and spaces, the first a letter or digit", id)
	}
	return name, nil
}

// openDatabase sets the database of the request by its id or resource id.
func (x *exchange) openDatabase(id string) error {
	name, err := nameOf(id)
	if isRID(id, 4) {
		name, err = x.databaseByRID(id)
	}
	if err != nil {
		return err
	}
	x.db, err = x.database(name)
	return err
}

func (x *exchange) databaseByRID(rid string) (string, error) {
	names, err := x.options.Databases(x)
	for _, name := range names {
		if databaseRID(name) == rid {
			return name, nil
		}
	}
	if err == nil {
		err = notFound("no database has the resource id %s", rid)
	}
	return "", err
}

// database returns a database by its name, with a connection of its own. It does not ask
// whether the database is served: the first request finds out.
func (g *Gateway) database(name string) (*database, error) {
	g.opening.Lock()
	defer g.opening.Unlock()
	if db, ok := g.databases.Get(name); ok {
		return db, nil
	}
	c, hangUp, err := g.options.Connect(name)
	if err != nil {
		return nil, err
	}
	db := &database{name: name, client: c, hangUp: hangUp, containers: make(map[string]*container)}
	db.running, db.shut = context.WithCancel(context.Background())
	g.databases.Add(name, db)
	return db, nil
}

// showDatabase returns a database as a resource, under the id that the request has.
func showDatabase(name, id string) []byte {
	rid := databaseRID(name)
	out := schema.AppendString([]byte(`{"id":`), id)
	return fmt.Appendf(out, `,"_rid":"%s","_self":"dbs/%[1]s/","_etag":"\"%[1]s\"","_colls":"colls/","_users":"users/","_ts":0}`, rid)
}

// databaseID returns the id of the database in the request, its name if that has a resource id.
func (x *exchange) databaseID() string {
	if id := x.path[1]; !isRID(id, 4) {
		return id
	}
	return x.db.name
}

// there returns an error unless the database is served. there is how the gateway finds out
// whether a database is served, without reading anything.
func (x *exchange) there() error {
	_, err := x.do("collection.list", "", "", []byte(`{"limit":1}`))
	return err
}

// readDatabase reads a database. It has no properties, so its etag is its resource id.
func (x *exchange) readDatabase() (*reply, error) {
	if err := x.there(); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusOK, body: showDatabase(x.db.name, x.databaseID()), etag: databaseRID(x.db.name)}, nil
}

// createDatabase opens a database on a server for tests, at the latest time of all. Tests
// move clocks forward, and a new database that began at 2000 would be behind the others.
func (x *exchange) createDatabase() (*reply, error) {
	given := values.Value(x.body).At([]string{"id"})
	if schema.CheckJSON(x.body) != nil || given.Kind() != values.String {
		return nil, badRequest("the database is no JSON object with an id, a string")
	}
	id := string(given.Text())
	name, err := nameOf(id)
	if err != nil {
		return nil, err
	}
	if err := x.create(name, id); err != nil {
		return nil, err
	}
	if err := x.setThroughput(databaseRID(name)); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusCreated, body: showDatabase(name, id), etag: databaseRID(name)}, nil
}

// create opens a database, or says why the gateway doesn't.
func (x *exchange) create(name, id string) (err error) {
	if x.db, err = x.database(name); err == nil && !x.options.Test {
		err = x.there()
	}
	switch {
	case err != nil && asFault(err).status == http.StatusNotFound:
		return faultf(http.StatusForbidden, "database %s is not served: the gateway creates none, start lapse with --database %[1]s", name)
	case err != nil:
		return err
	case !x.options.Test:
		return faultf(http.StatusConflict, "database %s exists", id)
	}
	_, latest, err := x.latest()
	if err != nil {
		return err
	}
	return x.db.client.TestClock().Open(x, latest)
}

// latest returns the databases of a server for tests, and the latest time that a clock shows;
// the zero time without any. The SDKs' tests know one clock, lapse one for each database.
func (x *exchange) latest() (names []string, now time.Time, err error) {
	if names, err = x.options.Databases(x); err != nil {
		return nil, now, err
	}
	for _, name := range names {
		db, err := x.database(name)
		if err != nil {
			return nil, now, err
		}
		shown, err := db.client.TestClock().Now(x)
		if err == nil && shown.After(now) {
			now = shown
		}
		if err != nil && !errors.Is(err, client.ErrDatabaseNotFound) { // dropped meanwhile
			return nil, now, err
		}
	}
	return names, now, nil
}

// deleteDatabase drops a database on a server for tests.
func (x *exchange) deleteDatabase() (*reply, error) {
	if !x.options.Test {
		if err := x.there(); err != nil {
			return nil, err
		}
		return nil, faultf(http.StatusForbidden, "the gateway deletes no database: delete its containers, or stop lapse and remove its directory")
	}
	if err := x.db.client.TestClock().Drop(x); err != nil {
		return nil, err
	}
	x.databases.Remove(x.db.name)
	x.throughput.Remove(databaseRID(x.db.name))
	return &reply{status: http.StatusNoContent}, nil
}

// listDatabases lists the databases, or those that a query chooses.
func (x *exchange) listDatabases(q *sql.Query) (*reply, error) {
	names, err := x.options.Databases(x)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, name := range names {
		for _, id := range idsFor(name, q) {
			all = append(all, showDatabase(name, id))
		}
	}
	return list("Databases", "", all, q)
}

// idsFor returns the ids under which a query asks for a database, which is compared by its
// name; the name if it asks for none.
func idsFor(name string, q *sql.Query) (ids []string) {
	if q == nil {
		return []string{name}
	}
	given := valuesOf(q.Equalities(), []string{"id"})
	for _, v := range given {
		id := string(v.Text())
		if made, err := nameOf(id); err == nil && made == name && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if given == nil {
		ids = []string{name}
	}
	return ids
}
