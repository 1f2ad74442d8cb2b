package cosmos

import (
	"net/http"
	"net/url"
	"slices"
	"unicode/utf8"
)

// pathUnescape decodes a segment of a path, which must be UTF-8.
func pathUnescape(segment string) (string, error) {
	text, err := url.PathUnescape(segment)
	if err == nil && !utf8.ValidString(text) {
		err = url.EscapeError(segment)
	}
	return text, err
}

// route answers a request by its path. The paths are those of Cosmos DB's REST API:
//
//	/                                  account
//	/dbs/salesdb                       database
//	/dbs/salesdb/colls/orders          container
//	/dbs/salesdb/colls/orders/docs     POST: item, query, batch; GET: all items, change feed
//	/dbs/salesdb/colls/orders/docs/SO05  item
//	/dbs/salesdb/colls/orders/pkranges  ranges of partition keys
//	/offers                            throughput
//
// SDKs send the same POST for an item, a query, a plan and a batch, and say which by a
// header.
func (x *exchange) route() (*reply, error) {
	switch {
	case len(x.path) == 0:
		return x.only(http.MethodGet, x.account)
	case x.path[0] == "offers":
		return x.routeOffers()
	case x.path[0] != "dbs":
		return nil, x.notServed()
	case len(x.path) == 1:
		return x.routeDatabases()
	}
	if err := x.openDatabase(x.path[1]); err != nil {
		return nil, err
	}
	switch {
	case len(x.path) == 2:
		return x.routeDatabase()
	case x.path[2] != "colls":
		return nil, x.notServed()
	case len(x.path) == 3:
		return x.routeContainers()
	case len(x.path) == 4:
		return x.routeContainer()
	}
	return x.routeIn()
}

// routeIn answers a request about what is in a container.
func (x *exchange) routeIn() (*reply, error) {
	c, err := x.container(x.path[3])
	if err != nil {
		return nil, err
	}
	if x.Header.Get("X-Ms-Documentdb-Pre-Trigger-Include") != "" || x.Header.Get("X-Ms-Documentdb-Post-Trigger-Include") != "" {
		return nil, badRequest("lapse does not serve triggers: leave them out of the options of the request")
	}
	switch kind := x.path[4]; {
	case kind == "pkranges" && len(x.path) == 5:
		return x.only(http.MethodGet, func() (*reply, error) { return x.ranges(c) })
	case kind == "docs" && len(x.path) == 5:
		return x.routeItems(c)
	case kind == "docs" && len(x.path) == 6:
		return x.routeItem(c)
	}
	return nil, x.notServed()
}

// only answers a request of one method.
func (x *exchange) only(method string, handle func() (*reply, error)) (*reply, error) {
	if x.Method != method {
		return nil, x.wrongMethod()
	}
	return handle()
}

func (x *exchange) wrongMethod() error {
	return faultf(http.StatusMethodNotAllowed, "%s is not served for this path", x.Method)
}

// features are what the segments of paths stand for that are not served.
var features = map[string]string{"sprocs": "stored procedures", "triggers": "triggers", "udfs": "user-defined functions", "users": "users and permissions",
	"permissions": "users and permissions", "conflicts": "conflicts", "addresses": "direct mode", "operations": "operations on partition keys", "clientencryptionkeys": "client encryption keys"}

// notServed is the error for a path that lapse does not serve. It names the feature, since
// an SDK shows its user nothing else.
func (x *exchange) notServed() error {
	for _, segment := range slices.Backward(x.path) {
		if name, ok := features[segment]; ok {
			return badRequest("lapse does not serve %s (%s)", name, segment)
		}
	}
	return badRequest("lapse does not serve this path of Cosmos DB")
}

func (x *exchange) routeDatabases() (*reply, error) {
	switch {
	case x.Method == http.MethodGet:
		return x.listDatabases(nil)
	case x.Method == http.MethodPost && isQuery(x.Request):
		return x.queried(x.listDatabases)
	case x.Method == http.MethodPost:
		return x.createDatabase()
	}
	return nil, x.wrongMethod()
}

func (x *exchange) routeDatabase() (*reply, error) {
	switch x.Method {
	case http.MethodGet:
		return x.readDatabase()
	case http.MethodDelete:
		return x.deleteDatabase()
	}
	return nil, x.wrongMethod()
}

func (x *exchange) routeContainers() (*reply, error) {
	switch {
	case x.Method == http.MethodGet:
		return x.listContainers(nil)
	case x.Method == http.MethodPost && isQuery(x.Request):
		return x.queried(x.listContainers)
	case x.Method == http.MethodPost:
		return x.createContainer()
	}
	return nil, x.wrongMethod()
}

func (x *exchange) routeContainer() (*reply, error) {
	switch x.Method {
	case http.MethodGet:
		return x.readContainer()
	case http.MethodPut:
		return x.replaceContainer()
	case http.MethodDelete:
		return x.deleteContainer()
	}
	return nil, x.wrongMethod()
}

func (x *exchange) routeItems(c *container) (*reply, error) {
	switch {
	case x.Method == http.MethodGet && x.Header.Get("A-IM") != "":
		return x.changeFeed(c)
	case x.Method == http.MethodGet:
		return x.readAll(c)
	case x.Method != http.MethodPost:
		return nil, x.wrongMethod()
	case is(x.Request, "X-Ms-Cosmos-Is-Query-Plan-Request"):
		return x.plan()
	case isQuery(x.Request):
		return x.query(c)
	case is(x.Request, "X-Ms-Cosmos-Is-Batch-Request"):
		return x.batch(c)
	case is(x.Request, "X-Ms-Documentdb-Is-Upsert"):
		return x.put(c, "document.upsert", "")
	}
	return x.put(c, "document.create", "")
}

func (x *exchange) routeItem(c *container) (*reply, error) {
	id := x.path[5]
	if isRID(x.path[1], 4) { // the path is the _self of an item, which Python's SDK follows
		raw, ok := decodeRID(id)
		if id = string(raw); !ok || !utf8.Valid(raw) {
			return nil, notFound("no item has the link %.80q", x.path[5])
		}
	} else if err := checkPathID(id); err != nil {
		return nil, err
	}
	switch x.Method {
	case http.MethodGet:
		return x.readItem(c, id)
	case http.MethodPut:
		return x.put(c, "document.replace", id)
	case http.MethodPatch:
		return x.patch(c, id)
	case http.MethodDelete:
		return x.deleteItem(c, id)
	}
	return nil, x.wrongMethod()
}

func (x *exchange) routeOffers() (*reply, error) {
	switch {
	case len(x.path) == 1 && x.Method == http.MethodPost && isQuery(x.Request):
		return x.queried(x.listOffers)
	case len(x.path) == 1 && x.Method == http.MethodGet:
		return x.listOffers(nil)
	case len(x.path) == 2 && x.Method == http.MethodGet:
		return x.readOffer()
	case len(x.path) == 2 && x.Method == http.MethodPut:
		return x.replaceOffer()
	}
	return nil, x.wrongMethod()
}
