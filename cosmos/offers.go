package cosmos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/cosmos/sql"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// offer is the content of an offer: the throughput as a client set it. lapse has no
// throughput: nothing is limited or billed by it. But programs create containers with one
// and read it back. So it is remembered: that of a container in its definition, that of a
// database in memory, until the gateway ends.
type offer struct {
	content  json.RawMessage
	resource string // link of what it is for
	rid      string // of that, and of the offer
	c        *container
}

// requestedOffer returns the content of the offer that the headers of a request ask for, nil
// without one.
func (x *exchange) requestedOffer() (json.RawMessage, error) {
	if text := x.Header.Get("X-Ms-Offer-Throughput"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, badRequest("x-ms-offer-throughput %.40q is no number", text)
		}
		return fmt.Appendf(nil, `{"offerThroughput":%d}`, n), nil
	}
	text := x.Header.Get("X-Ms-Cosmos-Offer-Autopilot-Settings")
	if text == "" {
		return nil, nil
	}
	if schema.CheckJSON([]byte(text)) != nil {
		return nil, badRequest("x-ms-cosmos-offer-autopilot-settings %.80q is not JSON", text)
	}
	return fmt.Appendf(nil, `{"offerThroughput":400,"offerAutopilotSettings":%s}`, text), nil
}

// withOffer adds the throughput that the request asks for to a definition.
func (x *exchange) withOffer(members values.Value) (values.Value, error) {
	content, err := x.requestedOffer()
	if err != nil || content == nil {
		return members, err
	}
	return setMember(members, offerMember, values.Value(content)), nil
}

// keepOffer copies the throughput of a definition to the one that replaces it.
func keepOffer(members, from values.Value) values.Value {
	if content := from.At([]string{offerMember}); content != nil {
		return setMember(members, offerMember, content)
	}
	return members
}

// setThroughput remembers the throughput of a database.
func (x *exchange) setThroughput(rid string) error {
	content, err := x.requestedOffer()
	if err == nil && content != nil {
		x.throughput.Add(rid, &offer{content: content, rid: rid, resource: "dbs/" + rid + "/"})
	}
	return err
}

// show returns the offer as a resource. Its id is that of what it is for, so it needs none
// of its own.
func (o *offer) show() []byte {
	return fmt.Appendf(nil, `{"id":"%s","_rid":"%[1]s","_self":"offers/%[1]s/","_etag":"\"%[1]s\"","_ts":0,"offerVersion":"V2","offerType":"Invalid","resource":"%[2]s","offerResourceId":"%[1]s","content":%[3]s}`,
		o.rid, o.resource, o.content)
}

// allOffers returns the offers of all databases and containers. It asks all databases for
// all containers: offers are rarely read.
func (x *exchange) allOffers() (all []*offer, err error) {
	names, err := x.options.Databases(x)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if o, ok := x.throughput.Get(databaseRID(name)); ok {
			all = append(all, o)
		}
		if x.db, err = x.database(name); err != nil {
			return nil, err
		}
		containers, err := x.containers()
		if err != nil {
			return nil, err
		}
		for _, c := range containers {
			if content := c.members.At([]string{offerMember}); content != nil {
				all = append(all, &offer{content: json.RawMessage(content), rid: c.rid, resource: c.self, c: c})
			}
		}
	}
	return all, nil
}

// listOffers lists the offers, or those that a query chooses.
func (x *exchange) listOffers(q *sql.Query) (*reply, error) {
	all, err := x.allOffers()
	if err != nil {
		return nil, err
	}
	shown := make([][]byte, len(all))
	for i, o := range all {
		shown[i] = o.show()
	}
	return list("Offers", "", shown, q)
}

// findOffer returns the offer with the resource id in the path.
func (x *exchange) findOffer() (*offer, error) {
	all, err := x.allOffers()
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if o.rid == strings.TrimSuffix(x.path[1], "/") {
			return o, nil
		}
	}
	return nil, notFound("there is no offer %.80q", x.path[1])
}

func (x *exchange) readOffer() (*reply, error) {
	o, err := x.findOffer()
	if err != nil {
		return nil, err
	}
	return &reply{status: http.StatusOK, body: o.show(), etag: o.rid}, nil
}

// replaceOffer changes the throughput of a database or container.
func (x *exchange) replaceOffer() (*reply, error) {
	o, err := x.findOffer()
	if err != nil {
		return nil, err
	}
	var given struct{ Content json.RawMessage }
	if err := json.Unmarshal(x.body, &given); err != nil || values.Value(given.Content).Kind() != values.Object || len(given.Content) > maxOffer {
		return nil, badRequest("the offer needs a content, an object of at most %d bytes", maxOffer)
	}
	changed := *o
	changed.content = given.Content
	if o.c == nil {
		x.throughput.Add(o.rid, &changed)
		return &reply{status: http.StatusOK, body: changed.show(), etag: o.rid}, nil
	}
	if x.db, err = x.database(o.c.db); err != nil {
		return nil, err
	}
	d := &definition{paths: o.c.paths, members: setMember(o.c.members, offerMember, values.Value(given.Content))}
	if _, err := x.putContainer("collection.replace", o.c.name(), o.c.info.Properties, d, http.StatusOK, client.IfMatch(o.c.info.ETag)); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusOK, body: changed.show(), etag: o.rid}, nil
}

// maxOffer is the size of the largest content of an offer, in bytes.
const maxOffer = 4 << 10
