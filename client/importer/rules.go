package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// Options say how a line becomes a document. A tag says what a field does, as the flag of lapse
// import. Paths are JSON pointers. Example: with ID
// /key and Expires /expiresAt,
//
//	{"key":"a","expiresAt":1767225600000,"user":"ann"}
//
// is stored as document a with the ttl that ends at that moment.
type Options struct {
	ID      string   `flag:"take the id from the member at [PATH], a string or a whole number"`
	Op      string   `flag:"[upsert], or create, which leaves documents alone that exist"`
	Expires string   `flag:"expire at the moment in the member at [PATH]"` // "" for never
	Drop    []string `flag:"leave out the member at [PATH]; repeatable"`
	DryRun  bool     `flag:"say what would happen and when the documents would expire, and store nothing"`
}

// Rules are options that can be applied.
type Rules struct {
	Create  bool           // leave alone what exists
	DryRun  bool           // read instead of write
	ID      values.Pointer // of a string or a whole number
	Expires values.Pointer // of a moment; nil for none
	Drop    []values.Pointer
}

// Rules returns what the options say. The error is ErrBadRequest; its message begins with
// the name of the option: id, op, expires or drop.
func (o Options) Rules() (r Rules, err error) {
	if o.Op != "upsert" && o.Op != "create" {
		return r, client.ErrBadRequest.With("op %.40q: use upsert, or create to leave documents alone that exist", o.Op)
	}
	pointer := func(option, path string) values.Pointer {
		p, fault := values.ParsePointer(path)
		if fault != nil && err == nil {
			err = client.ErrBadRequest.With("%s: %v", option, fault)
		}
		return p
	}
	r = Rules{Create: o.Op == "create", DryRun: o.DryRun, ID: pointer("id", o.ID)}
	if o.Expires != "" {
		r.Expires = pointer("expires", o.Expires)
	}
	for _, path := range o.Drop {
		r.Drop = append(r.Drop, pointer("drop", path))
	}
	if o.Expires == "/_deadline" { // which a query adds
		r.Drop = append(r.Drop, r.Expires, values.Pointer{"_rule"}, values.Pointer{"_hold"})
	}
	return r, err
}

// importLine is what becomes of a line. It is refused if fault is set, and neither sent
// nor refused if it is past.
type importLine struct {
	schema.Line
	fault    *client.Error // why it is refused, nil if it is not
	past     bool          // its moment has passed
	end      expiry
	deadline schema.Deadline // by this machine's clock
}

// expiry is when a document expires, as it was given.
type expiry struct {
	format    format
	expiresAt int64 // unix seconds, rounded up
}

type format int

const (
	noExpiry format = iota // absent
	forEver                // null
	unixSeconds
	unixMilliseconds
	rfc3339
)

// leastMilliseconds is the least number that is taken for milliseconds: in 1973. As seconds
// it is in the year 5138. Before 1970 it is the same.
const leastMilliseconds = 100_000_000_000

// parseExpiry reads the moment at which a document ends. It reads what other systems
// export: seconds or milliseconds as numbers or as text, fractions included, and RFC 3339.
// It rounds up, so that no document ends before its moment.
func parseExpiry(v values.Value) (end expiry, ok bool) {
	text := string(v)
	switch v.Kind() {
	case values.Missing:
		return expiry{}, true
	case values.Null:
		return expiry{format: forEver}, true
	case values.String:
		text = string(v.Text())
	case values.Number:
	default:
		return expiry{}, false
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(n) < 1<<53 {
		if math.Abs(n) >= leastMilliseconds {
			return expiry{unixMilliseconds, int64(math.Ceil(n / 1000))}, true
		}
		return expiry{unixSeconds, int64(math.Ceil(n))}, true
	}
	at, err := schema.ParseTime(text)
	if err != nil {
		return expiry{}, false
	}
	return expiry{rfc3339, at.Add(time.Second - 1).Unix()}, true
}

// operation adds the operation of a line to a batch, unless the line is refused or past.
// Checks here are those of the server: a line that it would refuse is refused without a
// request.
func (im *Import) operation(l *importLine, b *client.Batch, now int64) {
	id, body, fault := im.rules.document(l.Text)
	if fault == nil {
		fault = im.lifetime(l, id, &body, now)
	}
	if l.fault = fault; fault != nil || l.past {
		return
	}
	var opts []client.OperationOption
	if l.end.format > forEver {
		opts = append(opts, client.ExpireAt(time.Unix(l.end.expiresAt, 0)))
	}
	switch {
	case im.rules.DryRun:
		b.Get(id)
	case im.rules.Create:
		b.Create(id, json.RawMessage(body), opts...)
	default:
		b.Upsert(id, json.RawMessage(body), opts...)
	}
}

// document returns the id and body of a line, without the members that are dropped. Text
// of JSON keeps its numbers as written; an id that is a number is its digits.
func (r Rules) document(text []byte) (id string, body []byte, fault *client.Error) {
	if err := schema.CheckJSON(text); err != nil {
		return "", nil, client.ErrBadRequest.With("the line is not JSON: %v", err)
	}
	if values.Value(text).Kind() != values.Object {
		return "", nil, client.ErrBadRequest.With("the line is not a JSON object")
	}
	body = text
	switch v := values.Value(text).At(r.ID); v.Kind() {
	case values.String:
		id = string(v.Text())
	case values.Number:
		if bytes.ContainsAny(v, ".eE") {
			return "", nil, client.ErrBadID.With("the id at %s is %.40s: use a string or a whole number", r.ID, v)
		}
		if id = string(v); len(r.ID) == 1 && r.ID[0] == "id" {
			body = schema.Without(body, "id") // lapse adds it as a string
		}
	case values.Missing:
		return "", nil, client.ErrBadID.With("there is no id at %s: say which member has it", r.ID)
	default:
		return "", nil, client.ErrBadID.With("the id at %s is %.40s: use a string or a whole number", r.ID, v)
	}
	for _, path := range r.Drop {
		body = without(body, path)
	}
	return id, body, nil
}

// lifetime applies the moment of a line, and checks the document as the server does. The
// server computes the ttl from the moment by its own log time (client.ExpireAt): this
// machine's clock decides only whether a line is past or too far away.
func (im *Import) lifetime(l *importLine, id string, body *[]byte, now int64) *client.Error {
	if im.rules.Expires != nil {
		v := values.Value(l.Text).At(im.rules.Expires)
		end, ok := parseExpiry(v)
		if !ok {
			return client.ErrBadTTL.With("%s is %.40s: use unix seconds, unix milliseconds, a time like 2015-05-17T10:05:03Z, or null", im.rules.Expires, v)
		}
		if l.end = end; end.format > forEver {
			l.past = end.expiresAt <= now
			*body = schema.Without(*body, "ttl")
			if end.expiresAt-now > schema.MaxTTL {
				return client.ErrBadTTL.With("%s is %.40s, which is too far: use a moment at most %d s away, or null", im.rules.Expires, v, schema.MaxTTL)
			}
		}
	}
	d, fault := schema.ParseDocument(schema.DocumentID(id), *body)
	if _, err := schema.ParseDocumentID(id); err != nil {
		fault = schema.AsError(err)
	}
	if fault != nil {
		return fault
	}
	l.deadline = schema.DeadlineOf(im.coll.Info().DefaultTTL, d.TTL, now)
	switch {
	case l.end.format > forEver:
		l.deadline = schema.Deadline{At: l.end.expiresAt, TTL: int32(l.end.expiresAt - now), Rule: schema.RuleDocument}
	case l.end.format == forEver && l.deadline.Rule != schema.NoRule:
		*body, l.deadline = schema.WithTTL(*body, schema.Never), schema.Deadline{}
	case im.coll.Info().DefaultTTL != schema.Off:
		return d.TTLError()
	}
	return nil
}

// without returns a value without the member at a path, as it is if there is none. It
// copies all else as written.
func without(v values.Value, path values.Pointer) []byte {
	if v.At(path).Kind() == values.Missing {
		return v
	}
	if len(path) == 1 {
		return schema.Without(v, path[0])
	}
	out := []byte{'{'}
	v.Members(func(name []byte, value values.Value) bool {
		if string(name) == path[0] {
			value = without(value, path[1:])
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(schema.AppendString(out, string(name)), ':'), value...)
		return true
	})
	return append(out, '}')
}

// AppendRefused appends a refused line as JSON: its number, what is wrong, and the line as
// document, or as text if it is not JSON.
func AppendRefused(dst []byte, number int, text []byte, fault *client.Error) []byte {
	dst = fmt.Appendf(dst, `{"line":%d,"code":%d,"error":%q,"message":`, number, fault.Code, fault.Name)
	dst = schema.AppendString(dst, fault.Message)
	if schema.CheckJSON(text) == nil {
		dst = append(append(dst, `,"document":`...), text...)
	} else {
		dst = schema.AppendString(append(dst, `,"text":`...), strings.ToValidUTF8(string(text), "\uFFFD"))
	}
	return append(dst, '}')
}
