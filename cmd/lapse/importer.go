package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// importFlags are the flags of import.
type importFlags struct {
	id, op, expires, rejects string
	drop                     []string
	dryRun                   bool
}

// importRules say how a line becomes an operation.
type importRules struct {
	create     bool // leave alone what exists
	dryRun     bool
	id         values.Pointer // of a string or a whole number
	expires    values.Pointer // of a moment; nil for none
	drop       []values.Pointer
	properties client.Properties // of the collection
}

func (f *importFlags) rules() (r *importRules, err error) {
	if f.op != "upsert" && f.op != "create" {
		return nil, usageErrorf("--op %q: use upsert, or create to leave documents alone that exist", f.op)
	}
	pointer := func(flag, path string) values.Pointer {
		p, fault := values.ParsePointer(path)
		if fault != nil && err == nil {
			err = usageErrorf("%s: %v", flag, fault)
		}
		return p
	}
	r = &importRules{create: f.op == "create", dryRun: f.dryRun, id: pointer("--id", f.id)}
	if f.expires != "" {
		r.expires = pointer("--expires", f.expires)
	}
	for _, path := range f.drop {
		r.drop = append(r.drop, pointer("--drop", path))
	}
	if f.expires == "/_deadline" { // which a query adds
		r.drop = append(r.drop, r.expires)
	}
	return r, err
}

// importLine is what becomes of a line.
type importLine struct {
	schema.Line
	fault    *client.Error // why it is refused, nil if it is not
	past     bool          // its moment has passed
	end      importEnd
	deadline schema.Deadline // by this machine's clock
}

// importEnd is a moment as it was given.
type importEnd struct {
	format momentFormat
	at     int64 // unix seconds, rounded up
}

type momentFormat int

const (
	noMoment momentFormat = iota // absent
	forEver                      // null
	unixSeconds
	unixMilliseconds
	rfc3339
)

// leastMilliseconds is the least number that is taken for milliseconds: in 1973. As seconds
// it is in the year 5138.
const leastMilliseconds = 100_000_000_000

// parseMoment reads the moment at which a document ends.
func parseMoment(v values.Value) (end importEnd, ok bool) {
	text := string(v)
	switch v.Kind() {
	case values.Missing:
		return importEnd{}, true
	case values.Null:
		return importEnd{format: forEver}, true
	case values.String:
		text = string(v.Text())
	case values.Number:
	default:
		return importEnd{}, false
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 && n < 1<<53 {
		if n >= leastMilliseconds {
			return importEnd{unixMilliseconds, int64(math.Ceil(n / 1000))}, true
		}
		return importEnd{unixSeconds, int64(math.Ceil(n))}, true
	}
	at, err := schema.ParseTime(text)
	if err != nil {
		return importEnd{}, false
	}
	return importEnd{rfc3339, at.Add(time.Second - 1).Unix()}, true
}

// operation adds the operation of a line to a batch, unless the line is refused or past.
func (r *importRules) operation(l *importLine, b *client.Batch, now int64) {
	id, body, fault := r.document(l.Text)
	if fault == nil {
		fault = r.lifetime(l, id, &body, now)
	}
	if l.fault = fault; fault != nil || l.past {
		return
	}
	var opts []client.OperationOption
	if l.end.format > forEver {
		opts = append(opts, client.ExpireAt(time.Unix(l.end.at, 0)))
	}
	switch {
	case r.dryRun:
		b.Get(id)
	case r.create:
		b.Create(id, json.RawMessage(body), opts...)
	default:
		b.Upsert(id, json.RawMessage(body), opts...)
	}
}

// document returns the id and body of a line, without the members that are dropped.
func (r *importRules) document(text []byte) (id string, body []byte, fault *client.Error) {
	if err := schema.CheckJSON(text); err != nil {
		return "", nil, client.ErrBadRequest.With("the line is not JSON: %v", err)
	}
	if values.Value(text).Kind() != values.Object {
		return "", nil, client.ErrBadRequest.With("the line is not a JSON object")
	}
	body = text
	switch v := values.Value(text).At(r.id); v.Kind() {
	case values.String:
		id = string(v.Text())
	case values.Number:
		if bytes.ContainsAny(v, ".eE") {
			return "", nil, client.ErrBadID.With("the id at %s is %.40s: use a string or a whole number", r.id, v)
		}
		if id = string(v); len(r.id) == 1 && r.id[0] == "id" {
			body = schema.Without(body, "id") // lapse adds it as a string
		}
	case values.Missing:
		return "", nil, client.ErrBadID.With("there is no id at %s: name its member with --id", r.id)
	default:
		return "", nil, client.ErrBadID.With("the id at %s is %.40s: use a string or a whole number", r.id, v)
	}
	for _, path := range r.drop {
		body = without(body, path)
	}
	return id, body, nil
}

// lifetime applies the moment of a line, and checks the document as the server does.
func (r *importRules) lifetime(l *importLine, id string, body *[]byte, now int64) *client.Error {
	if r.expires != nil {
		v := values.Value(l.Text).At(r.expires)
		end, ok := parseMoment(v)
		if !ok {
			return client.ErrBadTTL.With("%s is %.40s: use unix seconds, unix milliseconds, a time like 2015-05-17T10:05:03Z, or null", r.expires, v)
		}
		if l.end = end; end.format > forEver {
			l.past = end.at <= now
			*body = schema.Without(*body, "ttl")
			if end.at-now > schema.MaxTTL {
				return client.ErrBadTTL.With("%s is %.40s, which is too far: use a moment at most %d s away, or null", r.expires, v, schema.MaxTTL)
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
	l.deadline = schema.DeadlineOf(r.properties.DefaultTTL, d.TTL, now)
	switch {
	case l.end.format > forEver:
		l.deadline = schema.Deadline{At: l.end.at, TTL: int32(l.end.at - now), Rule: schema.RuleDocument}
	case l.end.format == forEver && l.deadline.Rule != schema.NoRule:
		*body, l.deadline = schema.WithTTL(*body, schema.Never), schema.Deadline{}
	case r.properties.DefaultTTL != schema.Off:
		return d.TTLError()
	}
	return nil
}

// without returns a value without the member at a path, as it is if there is none.
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

// importCount counts what became of the lines.
type importCount struct {
	Lines    int     `json:"lines"`
	Created  int     `json:"created"`
	Replaced int     `json:"replaced"`
	Existed  int     `json:"existed"` // left alone by create
	Past     int     `json:"past"`    // their moment had passed
	Refused  int     `json:"refused"`
	Moments  moments `json:"moments"`

	Forecast *client.Forecast `json:"forecast,omitempty"` // of a dry run
}

// moments counts the lines by the format of their moment.
type moments struct {
	UnixSeconds      int `json:"unixSeconds"`
	UnixMilliseconds int `json:"unixMilliseconds"`
	RFC3339          int `json:"rfc3339"`
	Null             int `json:"null"`
	None             int `json:"none"`
}

// of returns the counter of a format.
func (m *moments) of(f momentFormat) *int {
	return [...]*int{noMoment: &m.None, forEver: &m.Null, unixSeconds: &m.UnixSeconds, unixMilliseconds: &m.UnixMilliseconds, rfc3339: &m.RFC3339}[f]
}

// describe says what was counted.
func (im *importing) describe(collection string) string {
	c, would := &im.count, ""
	if im.rules.dryRun {
		would = "would be "
	}
	text := fmt.Sprintf("%s: %d %screated, %d %sreplaced", printable(collection), c.Created, would, c.Replaced, would)
	for what, n := range c.rest() {
		text += fmt.Sprintf("; %d %s", n, what)
	}
	if took := time.Since(im.began); took > time.Second {
		text += fmt.Sprintf("; %s, %.0f a second", showDuration(took.Round(time.Second)), float64(c.Created+c.Replaced)/took.Seconds())
	}
	if im.rules.expires == nil {
		return text
	}
	var formats []string
	for f, name := range []string{"without a moment", "null", "in unix seconds", "in unix milliseconds", "in RFC 3339"} {
		if n := *c.Moments.of(momentFormat(f)); n > 0 {
			formats = append(formats, fmt.Sprintf("%d %s", n, name))
		}
	}
	return text + "\nmoments: " + strings.Join(formats, ", ")
}

// rest yields the counts of lines that were not stored.
func (c *importCount) rest() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		_ = (c.Existed == 0 || yield("there already and left alone", c.Existed)) &&
			(c.Past == 0 || yield("past their moment and left out", c.Past)) &&
			(c.Refused == 0 || yield("refused", c.Refused))
	}
}

// importing is an import in progress.
type importing struct {
	rules    *importRules
	rejects  *rejectWriter
	bar      *progress
	began    time.Time
	count    importCount
	forecast importForecast
	last     int // line up to which all are done
}

// run imports lines into a collection.
func (im *importing) run(ctx context.Context, coll *client.Collection, lines iter.Seq2[schema.Line, error]) error {
	var pending []*importLine // sent, in order
	var unreadable error
	batches := func(yield func(*client.Batch) bool) {
		for line, err := range lines {
			l, b := &importLine{Line: line}, coll.Batch()
			switch {
			case err == nil:
				im.rules.operation(l, b, time.Now().Unix())
			case line.Number > 0 && line.Bytes > schema.MaxLineBytes:
				l.fault = client.ErrTooLarge.With("the line is longer than %d bytes: a document has at most %d", schema.MaxLineBytes, schema.MaxDocumentBytes)
			default:
				unreadable = err
				return
			}
			if pending = append(pending, l); !yield(b) {
				return
			}
		}
	}
	for results, err := range client.RunBatches(ctx, batches, importsInFlight) {
		l := pending[0]
		pending = pending[1:]
		if tooLarge := errors.Is(err, client.ErrTooLarge); err != nil && !tooLarge {
			return err
		} else if tooLarge { // for the server's max_payload
			l.fault = schema.AsError(err)
		}
		if err := im.done(l, results); err != nil {
			return err
		}
	}
	return unreadable
}

// done counts a line by the result of its operation.
func (im *importing) done(l *importLine, results client.Results) error {
	exists := false
	if len(results) > 0 && l.fault == nil {
		exists = results[0].Code == 200
		switch fault := schema.AsError(results[0].Err); {
		case results[0].Err == nil:
		case im.rules.dryRun && fault.Code == client.ErrDocumentNotFound.Code:
		case im.rules.dryRun && fault.Code == client.ErrTooLarge.Code, im.rules.create && fault.Code == client.ErrDocumentExists.Code:
			exists = true
		default:
			l.fault = fault
			// Its moment passed on its way.
			l.past = fault.Name == client.ErrBadTTL.Name && l.end.format > forEver && l.end.at <= time.Now().Unix()+1
		}
	}
	im.bar.Add(int64(l.Bytes))
	im.last = l.Number
	c := &im.count
	c.Lines++
	if im.rules.expires != nil && (l.fault == nil || l.past) {
		*c.Moments.of(l.end.format)++
	}
	switch {
	case l.past:
		c.Past++
	case l.fault != nil:
		c.Refused++
		return im.rejects.reject(l.Number, l.Text, l.fault)
	case exists && im.rules.create:
		c.Existed++
	default:
		im.forecast.add(l.deadline)
		if exists {
			c.Replaced++
		} else {
			c.Created++
		}
	}
	return nil
}

// importForecast counts documents by their deadline, in several spans at a time: which one
// shows them all is known at the end.
type importForecast struct {
	spans [len(importSpans)]client.Forecast
}

// importSpans are seconds.
var importSpans = [...]int64{3600, day, 7 * day, 30 * day, 365 * day}

func (f *importForecast) begin(now int64) {
	for i, next := range importSpans {
		request := schema.ForecastRequest{Next: next}.EnsureDefaults()
		bounds := request.Buckets(now)
		f.spans[i] = client.Forecast{Now: now, Until: now + next, Bucket: request.Bucket}
		for b, from := range bounds[:len(bounds)-1] {
			f.spans[i].Buckets = append(f.spans[i].Buckets, client.ForecastBucket{From: from, Until: bounds[b+1]})
		}
	}
}

func (f *importForecast) add(d schema.Deadline) {
	for i := range f.spans {
		span := &f.spans[i]
		span.Documents++
		switch {
		case d.Rule == schema.NoRule:
			span.Never++
		case d.At >= span.Until:
			span.Later++
		default:
			span.Due++
			// The bucket that begins last before the deadline.
			b := sort.Search(len(span.Buckets), func(b int) bool { return span.Buckets[b].From > d.At })
			span.Buckets[max(b-1, 0)].Due++
		}
	}
}

// result returns the forecast of the shortest span that shows all.
func (f *importForecast) result(info client.CollectionInfo) *client.Forecast {
	shown := &f.spans[len(f.spans)-1]
	for i := len(f.spans) - 1; i >= 0; i-- {
		if f.spans[i].Later == 0 {
			shown = &f.spans[i]
		}
	}
	if shown.Collection = info.Name; info.DefaultTTL != schema.Off {
		shown.DefaultTTL = &info.DefaultTTL
	}
	return shown
}
