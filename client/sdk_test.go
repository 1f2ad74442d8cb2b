package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// sdk calls the Go client by the names and shapes of schema/vectors/README.md.
type sdk struct {
	*client.Client
	collections map[string]*client.Collection
}

func newSDK(c *client.Client) *sdk {
	return &sdk{Client: c, collections: make(map[string]*client.Collection)}
}

// call is one call of a method.
type call struct {
	Do         string            `json:"do"`
	Collection string            `json:"collection"`
	ID         string            `json:"id"`
	Args       []json.RawMessage `json:"args"`
	Break      int               `json:"break"` // the event with which the loop over a feed breaks
	Fail       []string          `json:"fail"`  // ids of the documents whose events a handler refuses
}

// arg reads an argument into a T, the zero value if it is absent.
func arg[T any](c call, i int) (value T, err error) {
	if i < len(c.Args) {
		d := json.NewDecoder(bytes.NewReader(c.Args[i]))
		d.DisallowUnknownFields()
		err = d.Decode(&value)
	}
	return value, err
}

// taking returns a method of an R that reads its first argument into a T.
func taking[R, T any](do func(context.Context, R, call, T) (any, error)) func(context.Context, R, call) (any, error) {
	return func(ctx context.Context, of R, c call) (any, error) {
		value, err := arg[T](c, 0)
		if err != nil {
			return nil, err
		}
		return do(ctx, of, c, value)
	}
}

// run returns the result of a call in the form of the vectors.
func (s *sdk) run(ctx context.Context, c call) (any, error) {
	if of, ok := ofDatabase[c.Do]; ok && c.Collection == "" {
		return of(ctx, s, c)
	}
	of, ok := ofCollection[c.Do]
	if !ok {
		return nil, fmt.Errorf("there is no method %q", c.Do)
	}
	coll := s.collections[c.Collection]
	if coll == nil {
		var err error
		if coll, err = s.Client.Collection(ctx, c.Collection); err != nil {
			return nil, err
		}
		s.collections[c.Collection] = coll
	}
	return of(ctx, coll, c)
}

var ofDatabase = map[string]func(context.Context, *sdk, call) (any, error){
	"createCollection":  func(ctx context.Context, s *sdk, c call) (any, error) { return put(ctx, c, s.CreateCollection) },
	"replaceCollection": replaceCollection,
	"getCollection": taking(func(ctx context.Context, s *sdk, c call, name string) (any, error) {
		return infoOf(s.Client.Collection(ctx, name))
	}),
	"deleteCollection": taking(func(ctx context.Context, s *sdk, c call, name string) (any, error) {
		return nil, s.DeleteCollection(ctx, name)
	}),
	"listCollections": func(ctx context.Context, s *sdk, _ call) (any, error) {
		all, err := s.Collections(ctx)
		return list(all, infoJSON), err
	},
	"status": func(ctx context.Context, s *sdk, _ call) (any, error) { return plain(s.Status(ctx)) },
	"changes": taking(func(ctx context.Context, s *sdk, c call, o feedOptions) (any, error) {
		return collect(s.Changes(ctx, o.feed()...), c.Break, eventJSON)
	}),
	"expirations": taking(func(ctx context.Context, s *sdk, c call, o feedOptions) (any, error) {
		return collect(client.Expirations[json.RawMessage](ctx, s.Client, o.feed()...), c.Break, expirationJSON)
	}),
	"warnings": taking(func(ctx context.Context, s *sdk, c call, o feedOptions) (any, error) {
		return collect(client.Warnings[json.RawMessage](ctx, s.Client, o.feed()...), c.Break, expirationJSON)
	}),
	"handle": taking(handle),
	"now": func(ctx context.Context, s *sdk, _ call) (any, error) {
		now, err := s.TestClock().Now(ctx)
		return moment(now), err
	},
	"advance": advance,
	"drop":    func(ctx context.Context, s *sdk, _ call) (any, error) { return nil, s.TestClock().Drop(ctx) },
}

var ofCollection = map[string]func(context.Context, *client.Collection, call) (any, error){
	"get": taking(func(ctx context.Context, coll *client.Collection, c call, o options) (any, error) {
		return orNull(itemJSON(client.Get[json.RawMessage](ctx, coll, c.ID, o.request()...)))
	}),
	"create": func(ctx context.Context, coll *client.Collection, c call) (any, error) {
		return write(ctx, coll, c, client.Create)
	},
	"upsert": func(ctx context.Context, coll *client.Collection, c call) (any, error) {
		return write(ctx, coll, c, client.Upsert)
	},
	"replace": func(ctx context.Context, coll *client.Collection, c call) (any, error) {
		return write(ctx, coll, c, client.Replace)
	},
	"patch": func(ctx context.Context, coll *client.Collection, c call) (any, error) {
		return write(ctx, coll, c, func(ctx context.Context, coll *client.Collection, id string, patch json.RawMessage, opts ...client.WriteOption) (client.Item[json.RawMessage], error) {
			return client.Patch[json.RawMessage](ctx, coll, id, patch, opts...)
		})
	},
	"delete": taking(func(ctx context.Context, coll *client.Collection, c call, o options) (any, error) {
		return nil, client.Delete(ctx, coll, c.ID, o.request()...)
	}),
	"touch": taking(func(ctx context.Context, coll *client.Collection, c call, o options) (any, error) {
		touched, err := client.Touch(ctx, coll, c.ID, o.write()...)
		result := lifetimeJSON(touched.Lifetime)
		result["id"], result["etag"], result["modified"] = c.ID, touched.ETag, moment(touched.Modified)
		return result, err
	}),
	"getAndTouch": taking(func(ctx context.Context, coll *client.Collection, c call, o options) (any, error) {
		return orNull(itemJSON(client.GetAndTouch[json.RawMessage](ctx, coll, c.ID, o.write()...)))
	}),
	"hold": taking(func(ctx context.Context, coll *client.Collection, c call, reason string) (any, error) {
		return nil, client.Hold(ctx, coll, c.ID, reason)
	}),
	"release": func(ctx context.Context, coll *client.Collection, c call) (any, error) {
		return nil, client.Release(ctx, coll, c.ID)
	},
	"restore": taking(func(ctx context.Context, coll *client.Collection, c call, version string) (any, error) {
		return itemJSON(client.Restore[json.RawMessage](ctx, coll, c.ID, version))
	}),
	"history": taking(func(ctx context.Context, coll *client.Collection, c call, o struct{ Limit int }) (any, error) {
		events, err := client.History(ctx, coll, c.ID, o.Limit)
		return list(events, eventJSON), err
	}),
	"batch": batch,
	"query": taking(func(ctx context.Context, coll *client.Collection, _ call, o queryOptions) (any, error) {
		return collect(client.Query[json.RawMessage](ctx, coll, o.query()...), 0, itemOf)
	}),
	"pages": taking(func(ctx context.Context, coll *client.Collection, _ call, o queryOptions) (any, error) {
		all := []any{}
		for page, err := range client.QueryPages[json.RawMessage](ctx, coll, o.query()...) {
			if err != nil {
				return nil, err
			}
			all = append(all, list(page.Items, itemOf)...)
		}
		return all, nil
	}),
	"count": taking(func(ctx context.Context, coll *client.Collection, _ call, o queryOptions) (any, error) {
		return plain(client.Count(ctx, coll, o.query()...))
	}),
	"forecast": forecast,
}

// options are those of requests for one document.
type options struct {
	TTL          *length    `json:"ttl"`
	ExpireAt     *time.Time `json:"expireAt"`
	KeepDeadline bool       `json:"keepDeadline"`
	IfMatch      string     `json:"ifMatch"`
	MsgID        string     `json:"msgId"`
	MinAge       *length    `json:"minAge"`
	MinSeq       uint64     `json:"minSeq"`
}

func (o options) request() (opts []client.RequestOption) {
	if o.IfMatch != "" {
		opts = append(opts, client.IfMatch(o.IfMatch))
	}
	if o.MsgID != "" {
		opts = append(opts, client.MsgID(o.MsgID))
	}
	if o.MinSeq != 0 {
		opts = append(opts, client.MinSeq(o.MinSeq))
	}
	return opts
}

// lifetimeOption is an option of a write, alone and in a batch.
type lifetimeOption interface {
	client.WriteOption
	client.OperationOption
}

func (o options) lifetime() (opts []lifetimeOption) {
	if o.TTL != nil {
		opts = append(opts, client.TTLOption(*o.TTL))
	}
	if o.ExpireAt != nil {
		opts = append(opts, client.ExpireAt(*o.ExpireAt))
	}
	if o.KeepDeadline {
		opts = append(opts, client.KeepDeadline())
	}
	return opts
}

func (o options) write() (opts []client.WriteOption) {
	for _, opt := range o.request() {
		opts = append(opts, opt)
	}
	for _, opt := range o.lifetime() {
		opts = append(opts, opt)
	}
	if o.MinAge != nil {
		opts = append(opts, client.MinAge(time.Duration(*o.MinAge)))
	}
	return opts
}

// length is a length of time: a text, a number of seconds, or "never".
type length time.Duration

const never = length(client.NeverExpire)

func (l *length) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		var seconds float64
		err := json.Unmarshal(data, &seconds)
		*l = length(seconds * float64(time.Second))
		return err
	}
	if text == "never" {
		*l = never
		return nil
	}
	seconds, err := schema.ParseSpan(text)
	*l = length(time.Duration(seconds) * time.Second)
	return err
}

// properties are those of a collection.
type properties struct {
	DefaultTTL     *length           `json:"defaultTtl"`
	WarnBefore     *length           `json:"warnBefore"`
	PreviousImages *bool             `json:"previousImages"`
	Metadata       map[string]string `json:"metadata"`
	IndexingPolicy *struct {
		IndexingMode  string                  `json:"indexingMode"`
		IncludedPaths []struct{ Path string } `json:"includedPaths"`
	} `json:"indexingPolicy"`
}

var indexingModes = map[string]client.IndexingMode{"": client.Consistent, "consistent": client.Consistent, "lazy": client.Lazy, "none": client.None}

func (p properties) options() (opts []client.PropertyOption) {
	switch {
	case p.DefaultTTL == nil:
	case *p.DefaultTTL == never:
		opts = append(opts, client.TTLPerDocument())
	default:
		opts = append(opts, client.DefaultTTL(time.Duration(*p.DefaultTTL)))
	}
	if p.WarnBefore != nil {
		opts = append(opts, client.WarnBefore(time.Duration(*p.WarnBefore)))
	}
	if p.PreviousImages != nil {
		opts = append(opts, client.PreviousImages(*p.PreviousImages))
	}
	if i := p.IndexingPolicy; i != nil {
		opts = append(opts, client.Indexing(indexingModes[i.IndexingMode]))
		for _, included := range i.IncludedPaths {
			opts = append(opts, client.IncludePaths(included.Path))
		}
	}
	for name, value := range p.Metadata {
		opts = append(opts, client.Metadata(name, value))
	}
	return opts
}

func put(ctx context.Context, c call, to func(context.Context, string, ...client.PropertyOption) (*client.Collection, error)) (any, error) {
	name, err := arg[string](c, 0)
	if err != nil {
		return nil, err
	}
	p, err := arg[properties](c, 1)
	if err != nil {
		return nil, err
	}
	return infoOf(to(ctx, name, p.options()...))
}

// replaceCollection sends the request itself where it has a condition: ReplaceCollection of
// the Go client has none.
func replaceCollection(ctx context.Context, s *sdk, c call) (any, error) {
	o, err := arg[options](c, 2)
	if err != nil {
		return nil, err
	}
	if o.IfMatch == "" {
		return put(ctx, c, s.ReplaceCollection)
	}
	name, err := arg[string](c, 0)
	if err != nil {
		return nil, err
	}
	given, err := arg[properties](c, 1)
	if err != nil {
		return nil, err
	}
	p := schema.DefaultProperties()
	for _, opt := range given.options() {
		if err := opt(&p); err != nil {
			return nil, err
		}
	}
	reply, err := s.Do(ctx, "collection.replace", name, "", p.AppendJSON(nil), o.request()...)
	if err != nil {
		return nil, err
	}
	var info client.CollectionInfo
	err = json.Unmarshal(reply.Body, &info)
	return infoJSON(info), err
}

func infoOf(coll *client.Collection, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return infoJSON(coll.Info()), nil
}

func infoJSON(info client.CollectionInfo) any {
	result, _ := plain(json.RawMessage(info.Properties.AppendJSON(nil)), nil)
	all := result.(map[string]any)
	if info.DefaultTTL == client.NoDefault {
		all["defaultTtl"] = "never"
	}
	all["name"], all["etag"], all["modified"], all["documents"], all["bytes"] = info.Name, info.ETag, moment(info.Modified), number(info.Documents), number(info.Bytes)
	return all
}

func write(ctx context.Context, coll *client.Collection, c call, to func(context.Context, *client.Collection, string, json.RawMessage, ...client.WriteOption) (client.Item[json.RawMessage], error)) (any, error) {
	o, err := arg[options](c, 1)
	if err != nil {
		return nil, err
	}
	return itemJSON(to(ctx, coll, c.ID, c.Args[0], o.write()...))
}

// operation is one of a batch.
type operation struct {
	Op    string          `json:"op"`
	ID    string          `json:"id"`
	Value json.RawMessage `json:"value"`
	options
}

func batch(ctx context.Context, coll *client.Collection, c call) (any, error) {
	operations, err := arg[[]operation](c, 0)
	if err != nil {
		return nil, err
	}
	o, err := arg[struct{ Atomic bool }](c, 1)
	if err != nil {
		return nil, err
	}
	b := coll.Batch()
	for _, op := range operations {
		if err := op.add(b); err != nil {
			return nil, err
		}
	}
	run := b.Run
	if o.Atomic {
		run = b.RunAtomic
	}
	results, err := run(ctx)
	return list(results, resultJSON), err
}

func resultJSON(r client.Result) any {
	item, err := itemJSON(client.Decode[json.RawMessage](r))
	switch {
	case err != nil:
		return errorJSON(err)
	case r.Body == nil:
		return map[string]any{}
	}
	return map[string]any{"item": item}
}

func (o operation) add(b *client.Batch) error {
	var opts []client.OperationOption
	for _, opt := range o.lifetime() {
		opts = append(opts, opt)
	}
	if o.IfMatch != "" {
		opts = append(opts, client.OnlyIfMatch(o.IfMatch))
	}
	switch o.Op {
	case "get":
		b.Get(o.ID)
	case "create":
		b.Create(o.ID, o.Value, opts...)
	case "upsert":
		b.Upsert(o.ID, o.Value, opts...)
	case "replace":
		b.Replace(o.ID, o.Value, opts...)
	case "patch":
		b.Patch(o.ID, o.Value, opts...)
	case "delete":
		b.Delete(o.ID, opts...)
	case "touch":
		b.Touch(o.ID, opts...)
	case "hold":
		b.Hold(o.ID, "", opts...)
	case "release":
		b.Release(o.ID, opts...)
	default:
		return fmt.Errorf("there is no operation %q", o.Op)
	}
	return nil
}

// queryOptions are those of queries and counts.
type queryOptions struct {
	Where    string
	Params   map[string]any
	OrderBy  []orderBy
	Select   []string
	Limit    int
	IDPrefix *string
	Due      *struct{ From, Until time.Time }
	Held     bool
}

// query returns the options of the Go client. As in other languages, an item has its deadline,
// and with select its id and version, too.
func (o queryOptions) query() []client.QueryOption {
	opts := []client.QueryOption{client.Deadlines()}
	if o.Where != "" || o.Params != nil {
		opts = append(opts, client.Where(o.Where, o.Params))
	}
	for _, by := range o.OrderBy {
		opts = append(opts, client.OrderBy(by.Path, client.Direction(by.Desc)))
	}
	if o.Select != nil {
		opts = append(opts, client.Select(append(o.Select, "/id", "/_etag", "/_ts")...))
	}
	if o.Limit != 0 {
		opts = append(opts, client.Limit(o.Limit))
	}
	if o.IDPrefix != nil {
		opts = append(opts, client.IDPrefix(*o.IDPrefix))
	}
	if o.Due != nil {
		opts = append(opts, client.Due(o.Due.From, o.Due.Until))
	}
	if o.Held {
		opts = append(opts, client.Held())
	}
	return opts
}

// orderBy is a path, or an object with a path and desc.
type orderBy struct {
	Path string
	Desc bool
}

func (o *orderBy) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &o.Path) == nil {
		return nil
	}
	type object orderBy
	return json.Unmarshal(data, (*object)(o))
}

func forecast(ctx context.Context, coll *client.Collection, c call) (any, error) {
	o, err := arg[struct{ Next, Bucket, DefaultTTL *length }](c, 0)
	if err != nil {
		return nil, err
	}
	var opts []client.ForecastOption
	if o.Next != nil {
		opts = append(opts, client.Within(time.Duration(*o.Next)))
	}
	if o.Bucket != nil {
		opts = append(opts, client.InBuckets(time.Duration(*o.Bucket)))
	}
	for _, ttl := range (properties{DefaultTTL: o.DefaultTTL}).options() {
		opts = append(opts, client.WhatIf(ttl))
	}
	return plain(coll.Forecast(ctx, opts...))
}

// feedOptions are those of feeds, and of handle.
type feedOptions struct {
	Durable    *string
	Collection string
	Types      []string
	From       bound // a sequence, a moment or "start"
	Until      bound // a sequence, a moment or "now"
	AckWait    *length
	Workers    int
	Poison     *struct{ After int }
}

// bound is where a feed begins or ends; without any member it is not given.
type bound struct {
	seq  *uint64
	at   *time.Time
	word string // the text
}

func (b *bound) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &b.word) != nil {
		return json.Unmarshal(data, &b.seq)
	}
	if at, err := time.Parse(time.RFC3339Nano, b.word); err == nil {
		b.at = &at
	}
	return nil
}

func (o feedOptions) feed() (opts []client.FeedOption) {
	if o.Durable != nil {
		opts = append(opts, client.Durable(*o.Durable))
	}
	if o.Collection != "" {
		opts = append(opts, client.InCollection(o.Collection))
	}
	for _, name := range o.Types {
		opts = append(opts, client.OfType(schema.ParseEventType(name)))
	}
	if o.AckWait != nil {
		opts = append(opts, client.AckWait(time.Duration(*o.AckWait)))
	}
	switch from := o.From; {
	case from.seq != nil:
		opts = append(opts, client.FromSeq(*from.seq))
	case from.at != nil:
		opts = append(opts, client.FromTime(*from.at))
	case from.word == "start":
		opts = append(opts, client.FromStart())
	}
	switch until := o.Until; {
	case until.seq != nil:
		opts = append(opts, client.UntilSeq(*until.seq))
	case until.at != nil:
		opts = append(opts, client.UntilTime(*until.at))
	case until.word == "now":
		opts = append(opts, client.UntilNow())
	}
	return opts
}

// handle returns the events that the handler has handled, and those put aside.
func handle(ctx context.Context, s *sdk, c call, o feedOptions) (any, error) {
	var opts []client.HandleOption
	for _, opt := range o.feed() {
		opts = append(opts, opt)
	}
	if o.Workers != 0 {
		opts = append(opts, client.Workers(o.Workers))
	}
	var mu sync.Mutex
	handled, poisoned := []any{}, []any{}
	add := func(to *[]any, e *client.Event) error {
		mu.Lock()
		defer mu.Unlock()
		*to = append(*to, eventJSON(e))
		return nil
	}
	if o.Poison != nil {
		opts = append(opts, client.Poison(o.Poison.After, func(_ context.Context, e *client.Event, _ error) error {
			return add(&poisoned, e)
		}))
	}
	err := s.Handle(ctx, func(_ context.Context, e *client.Event) error {
		if slices.Contains(c.Fail, e.ID) {
			return errors.New("refused by the vector")
		}
		return add(&handled, e)
	}, opts...)
	return map[string]any{"handled": handled, "poisoned": poisoned}, err
}

func advance(ctx context.Context, s *sdk, c call) (any, error) {
	by, err := arg[string](c, 0)
	if err != nil {
		return nil, err
	}
	move := func() (client.Advanced, error) { return s.TestClock().AdvanceToDue(ctx) }
	if to, err := time.Parse(time.RFC3339Nano, by); err == nil {
		move = func() (client.Advanced, error) { return s.TestClock().AdvanceTo(ctx, to) }
	} else if by != "due" {
		seconds, err := schema.ParseSpan(by)
		if err != nil {
			return nil, err
		}
		move = func() (client.Advanced, error) { return s.TestClock().Advance(ctx, time.Duration(seconds)*time.Second) }
	}
	moved, err := move()
	return map[string]any{"now": moment(moved.Now), "seq": number(moved.Seq), "events": number(moved.Events)}, err
}

// list returns the forms of several values.
func list[T any](values []T, of func(T) any) []any {
	all := []any{}
	for _, value := range values {
		all = append(all, of(value))
	}
	return all
}

// collect returns what a loop reads, up to the element with which it breaks, 0 for none.
func collect[T any](all iter.Seq2[T, error], last int, of func(T) any) (any, error) {
	list := []any{}
	for element, err := range all {
		if err != nil {
			return nil, err
		}
		if list = append(list, of(element)); len(list) == last {
			break
		}
	}
	return list, nil
}

func itemJSON(item client.Item[json.RawMessage], err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return itemOf(item), nil
}

func itemOf(item client.Item[json.RawMessage]) any {
	result := lifetimeJSON(item.Lifetime)
	seq, _ := strconv.ParseUint(item.ETag, 10, 64)
	result["id"], result["value"], result["etag"], result["seq"], result["modified"] = item.ID, valueJSON(item.Value), item.ETag, number(seq), moment(item.Modified)
	return result
}

func lifetimeJSON(l client.Lifetime) map[string]any {
	result := map[string]any{"held": l.Held}
	if l.Rule != client.NoRule {
		result["deadline"], result["rule"] = moment(l.Deadline), l.Rule.String()
	}
	if l.Held {
		result["reason"] = l.Reason
	}
	return result
}

func expirationJSON(x client.Expiration[json.RawMessage]) any { return eventJSON(x.Event) }

func eventJSON(e *client.Event) any {
	result := map[string]any{"seq": number(e.Seq), "time": moment(e.Time), "type": e.Type.String(), "collection": e.Collection}
	text := func(name, value string) {
		if value != "" {
			result[name] = value
		}
	}
	text("id", e.ID)
	text("previous", e.Previous)
	text("rule", e.Rule.String())
	text("traceparent", e.TraceParent)
	if restored := e.Schema().Restored; restored != 0 {
		text("restored", restored.String())
	}
	if e.Rule != client.NoRule {
		result["deadline"], result["ttl"] = moment(e.Deadline), number(int64(e.TTL/time.Second))
	}
	if len(e.Body) > 0 {
		result["value"] = valueJSON(e.Body)
	}
	return result
}

// valueJSON decodes a document without the members that lapse adds.
func valueJSON(document []byte) any {
	value, _ := plain(json.RawMessage(schema.Without(document, "_ts", "_etag", "_deadline", "_rule", "_hold")), nil)
	return value
}

func errorJSON(err error) any {
	coded, ok := errors.AsType[*client.Error](err)
	if !ok {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"error": map[string]any{"code": number(coded.Code), "error": coded.Name, "retryable": coded.Retryable()}}
}

// orNull returns null for a document that does not live.
func orNull(item any, err error) (any, error) {
	if errors.Is(err, client.ErrDocumentNotFound) {
		return nil, nil
	}
	return item, err
}

// moment returns a time in the form of the vectors, nil for none.
func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func number[T int | int64 | uint64](n T) json.Number { return json.Number(fmt.Sprint(n)) }

// plain returns a value as encoding/json reads its JSON.
func plain(value any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return decodeJSON(text)
}

func decodeJSON(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}
