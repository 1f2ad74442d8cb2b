package cosmos

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/cosmos/sql"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// Each request about an item needs the partition key, and reading it costs a request of
// its own. So a container that was read is used again for a while. How long depends on
// what is known:
//
//   - with a tail of the log, as long as that has seen no event of a collection
//   - without one, for maxAge
//   - after a change through this gateway, not at all
//
// A request with a stale definition is harmless but for its partition key, which never
// changes in a container's life. One that was created again with another key has another
// resource id, which SDKs send.

// container is a collection with its definition.
type container struct {
	*definition
	db     string
	info   client.CollectionInfo
	rid    string
	self   string
	about  string // path by names
	seq    uint64
	readAt time.Time // by the machine's clock
	tail   *tail     // of the log then
}

// maxAge is how long a definition is used after it was read, where no tail of the log shows
// whether it changed. Changes by this gateway count at once.
const maxAge = time.Second

// fresh reports whether a container may be used as it was read.
func (c *container) fresh(t *tail) bool {
	if t != nil && c.tail == t {
		if unchanged, ok := t.unchanged(c.seq); ok {
			return unchanged
		}
	}
	return time.Since(c.readAt) <= maxAge
}

// name is the collection's.
func (c *container) name() string { return c.info.Name }

// container returns the container with an id or resource id. SDKs tell two cases apart: a
// stale resource id is a 404, a container created again a 400 with substatus 1024. At the
// latter they read it again.
func (x *exchange) container(id string) (*container, error) {
	name := id
	if isRID(id, 8) {
		found, err := x.containerByRID(id)
		if err != nil {
			return nil, err
		}
		name = found.name()
	}
	x.db.mu.Lock()
	c, t := x.db.containers[name], x.db.tail
	x.db.mu.Unlock()
	if c == nil || !c.fresh(t) {
		var err error
		if c, err = x.readDefinition(name); err != nil {
			return nil, err
		}
	}
	if rid := x.Header.Get("X-Ms-Cosmos-Intended-Collection-Rid"); rid != "" && rid != c.rid {
		return nil, &fault{status: http.StatusBadRequest, substatus: otherContainer, message: "the container was created again with another partition key: read it again"}
	}
	return c, nil
}

// readDefinition reads a container from the database, and remembers it. Only a container
// that was read without fault is remembered.
func (x *exchange) readDefinition(name string) (*container, error) {
	if err := checkContainerID(name); err != nil {
		return nil, err
	}
	answer, err := x.do("collection.get", name, "", nil)
	if err != nil {
		return nil, err
	}
	return x.containerOf(answer)
}

// checkContainerID refuses what is no name of a collection: Cosmos DB allows more.
func checkContainerID(id string) error {
	if _, err := schema.ParseCollectionName(id); err != nil {
		return badRequest("container id: %v", err)
	}
	return nil
}

// containerOf reads a collection in a reply, and remembers the container.
func (x *exchange) containerOf(answer *client.Reply) (*container, error) {
	var info client.CollectionInfo
	if err := json.Unmarshal(answer.Body, &info); err != nil {
		return nil, err
	}
	c, err := x.containerFrom(info)
	if err != nil {
		return nil, err
	}
	c.seq = answer.Seq
	x.db.mu.Lock()
	defer x.db.mu.Unlock()
	c.tail = x.db.tail
	x.db.containers[info.Name] = c
	return c, nil
}

// containerFrom makes a container of a collection.
func (x *exchange) containerFrom(info client.CollectionInfo) (*container, error) {
	d, err := readDefinition(&info.Properties)
	if err != nil {
		return nil, err
	}
	rid := containerRID(x.db.name, info.Name, d.pathTexts())
	return &container{definition: d, db: x.db.name, info: info, rid: rid, self: "dbs/" + databaseRID(x.db.name) + "/colls/" + rid + "/",
		about: "dbs/" + x.db.name + "/colls/" + info.Name, readAt: time.Now()}, nil
}

// containers returns all containers of the database. A collection whose definition is none is
// an error only to those who name it.
func (x *exchange) containers() (all []*container, err error) {
	infos, err := x.db.client.Collections(x)
	if err != nil {
		return nil, x.explain(err)
	}
	for _, info := range infos {
		if c, err := x.containerFrom(info); err == nil {
			all = append(all, c)
		}
	}
	return all, nil
}

// containerByRID finds the container of a resource id. Nothing maps digests back to names,
// so it compares those of all containers.
func (x *exchange) containerByRID(rid string) (*container, error) {
	all, err := x.containers()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(c *container) bool { return c.rid == rid }); i >= 0 {
		return all[i], nil
	}
	return nil, &fault{status: http.StatusNotFound, substatus: noContainer, message: "no container has the resource id " + rid}
}

// show returns the container as a resource. The members are those that the client sent;
// what lapse decides replaces or follows them.
func (c *container) show() []byte {
	out := schema.AppendString([]byte(`{"id":`), c.name())
	out = appendMembers(out, c.members, func(name string, value values.Value) values.Value {
		switch name {
		case "partitionKey", "indexingPolicy", offerMember:
			return nil
		}
		return value
	})
	out = append(append(out, `,"indexingPolicy":`...), c.showPolicy()...)
	kind := "Hash"
	if len(c.paths) > 1 {
		kind = "MultiHash"
	}
	paths, _ := json.Marshal(c.pathTexts()) // strings
	out = fmt.Appendf(out, `,"partitionKey":{"paths":%s,"kind":"%s","version":2}`, paths, kind)
	if ttl := c.info.DefaultTTL; ttl != schema.Off {
		out = strconv.AppendInt(append(out, `,"defaultTtl":`...), int64(ttl), 10)
	}
	return fmt.Appendf(out, `,"_rid":"%s","_self":"%s","_etag":"\"%s\"","_ts":%d,"_docs":"docs/","_sprocs":"sprocs/","_triggers":"triggers/","_udfs":"udfs/","_conflicts":"conflicts/"}`,
		c.rid, c.self, c.info.ETag, c.info.Modified.Unix())
}

// showPolicy returns the indexing policy as sent, with the collection's mode.
func (c *container) showPolicy() []byte {
	out := schema.AppendString([]byte(`{"indexingMode":`), string(c.info.IndexingMode))
	policy := c.members.At([]string{"indexingPolicy"})
	if policy.Kind() != values.Object {
		return append(out, `,"automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}`...)
	}
	out = appendMembers(out, policy, func(name string, value values.Value) values.Value {
		if name == "indexingMode" {
			return nil
		}
		return value
	})
	return append(out, '}')
}

func (c *container) reply(status int) *reply {
	return &reply{status: status, body: c.show(), etag: c.info.ETag, seq: c.seq, about: "dbs/" + c.db}
}

// createContainer creates the collection of a container. What Cosmos DB has no word for
// has lapse's defaults.
func (x *exchange) createContainer() (*reply, error) {
	p := schema.DefaultProperties()
	d, err := parseDefinition(x.body, &p)
	if err != nil {
		return nil, err
	}
	id := string(values.Value(x.body).At([]string{"id"}).Text())
	if err := checkContainerID(id); err != nil {
		return nil, err
	}
	if d.members, err = x.withOffer(d.members); err != nil {
		return nil, err
	}
	return x.putContainer("collection.create", id, p, d, http.StatusCreated)
}

// putContainer creates or replaces the collection of a container. A definition that is too
// large for the metadata of a collection is a 400, since the client sent a legal
// container.
func (x *exchange) putContainer(op, id string, p schema.Properties, d *definition, status int, opts ...client.RequestOption) (*reply, error) {
	if err := client.Metadata(metadataName, string(d.members))(&p); err != nil {
		return nil, err
	}
	x.db.evict(id)
	answer, err := x.do(op, id, "", p.AppendJSON(nil), opts...)
	if errors.Is(err, client.ErrTooLarge) {
		return nil, badRequest("the definition of the container is too large: %v", err)
	}
	if err != nil {
		return nil, err
	}
	c, err := x.containerOf(answer)
	if err != nil {
		return nil, err
	}
	return c.reply(status), nil
}

// readContainer reads a container again: a client that asks wants to see changes of others.
func (x *exchange) readContainer() (*reply, error) {
	c, err := x.fresh()
	if err != nil {
		return nil, err
	}
	return c.reply(http.StatusOK), nil
}

// fresh returns the container of the path as it is now.
func (x *exchange) fresh() (*container, error) {
	c, err := x.container(x.path[3])
	if err != nil {
		return nil, err
	}
	return x.readDefinition(c.name())
}

// replaceContainer replaces what Cosmos DB has a word for, and keeps the rest, paths that were
// included over NATS among them. Without If-Match the etag just read is the condition, so
// that a change over NATS between the two is not lost: the client gets a 412.
func (x *exchange) replaceContainer() (*reply, error) {
	c, err := x.fresh()
	if err != nil {
		return nil, err
	}
	p, own := c.info.Properties, c.includedPaths()
	p.IncludedPaths = slices.DeleteFunc(slices.Clone(p.IncludedPaths), func(path string) bool { return slices.Contains(own, path) })
	d, err := parseDefinition(x.body, &p)
	if err != nil {
		return nil, err
	}
	if !slices.EqualFunc(d.paths, c.paths, slices.Equal) {
		return nil, badRequest("the partition key of a container cannot be changed: it is %v", c.pathTexts())
	}
	d.members = keepOffer(d.members, c.members)
	match := x.ifMatch()
	if match == nil {
		match = []client.RequestOption{client.IfMatch(c.info.ETag)}
	}
	return x.putContainer("collection.replace", c.name(), p, d, http.StatusOK, match...)
}

func (x *exchange) deleteContainer() (*reply, error) {
	c, err := x.container(x.path[3])
	if err != nil {
		return nil, err
	}
	x.db.evict(c.name())
	if _, err := x.do("collection.delete", c.name(), "", nil, x.ifMatch()...); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusNoContent, about: "dbs/" + c.db}, nil
}

func (x *exchange) listContainers(q *sql.Query) (*reply, error) {
	all, err := x.containers()
	if err != nil {
		return nil, err
	}
	shown := make([][]byte, len(all))
	for i, c := range all {
		shown[i] = c.show()
	}
	return list("DocumentCollections", databaseRID(x.db.name), shown, q)
}

// ranges is the only range of partition keys. SDKs ask until they hear a 304. A real
// account splits a container into ranges as it grows; SDKs send requests by range, and ask
// for the list with the etag that they have.
func (x *exchange) ranges(c *container) (*reply, error) {
	const etag = "1"
	out := &reply{status: http.StatusNotModified, etag: etag, about: c.about, header: map[string]string{"X-Ms-Item-Count": "1"}}
	if etagOf(x.Request, "If-None-Match") == etag {
		return out, nil
	}
	out.status = http.StatusOK
	out.body = fmt.Appendf(nil, `{"_rid":"%s","PartitionKeyRanges":[{"id":"0","_rid":"%[1]s","_self":"%[2]spkranges/0/","_etag":"\"1\"","_ts":%[3]d,"minInclusive":"","maxExclusive":"FF",`+
		`"ridPrefix":0,"throughputFraction":1,"status":"online","parents":[],"lsn":1}],"_count":1}`, c.rid, c.self, c.info.Modified.Unix())
	return out, nil
}
