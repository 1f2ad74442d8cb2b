package embedded_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// refusedConfigs are consumer configurations that clients may not request, with the
// field that the error names.
var refusedConfigs = map[string]string{
	`"direct":true,"deliver_subject":"_INBOX.x","ack_policy":"none","flow_control":true,"idle_heartbeat":1000000000`:   "direct",
	`"sourcing":true,"deliver_subject":"_INBOX.x","ack_policy":"none","flow_control":true,"idle_heartbeat":1000000000`: "sourcing",
	`"deliver_subject":"_INBOX.x","ack_policy":"explicit","max_ack_pending":-1`:                                        "max_ack_pending",
	`"ack_policy":"all","max_ack_pending":-1`:                                                                          "max_ack_pending",
	`"ack_policy":"explicit","max_ack_pending":100000`:                                                                 "max_ack_pending",
	`"deliver_subject":"_INBOX.x","ack_policy":"none"`:                                                                 "flow_control",
	`"ack_policy":"flow_control","deliver_subject":"_INBOX.x","max_ack_pending":-1`:                                    "max_ack_pending",
	`"deliver_subject":"external"`:                                                                                     "deliver_subject",
	`"metadata":{"x":"` + strings.Repeat("x", 120_000) + `"}`:                                                          "metadata",
	`"description":"` + strings.Repeat("x", 4000) + `"`:                                                                "description",
	`"filter_subject":"lapse.main.events.` + strings.Repeat("x", 5000) + `"`:                                           "filter_subject",
	`"filter_subjects":[` + list(500, func(n int) string { return fmt.Sprintf(`"lapse.%d.>"`, n) }) + `]`:              "filter_subjects",
	`"filter_subjects":["` + strings.Repeat("x", 5000) + `"]`:                                                          "filter_subjects",
	`"max_deliver":2000,"ack_policy":"explicit","backoff":[` + list(1000, func(int) string { return "1" }) + `]`:       "backoff",
	`"max_waiting":100000`:                                         "max_waiting",
	`"sample_freq":"` + strings.Repeat("1", 1000) + `"`:            "sample_freq",
	`"deliver_subject":"_INBOX.` + strings.Repeat("x", 1000) + `"`: "deliver_subject",
	`"deliver_subject":"_INBOX.x","ack_policy":"explicit","deliver_group":"` + strings.Repeat("x", 1000) + `"`:                 "deliver_group",
	`"priority_policy":"overflow","priority_groups":[` + list(100, func(n int) string { return fmt.Sprintf(`"%d"`, n) }) + `]`: "priority_groups",
	`"description":"` + strings.Repeat(`\u0001`, 1000) + `","metadata":{"x":"` + strings.Repeat(`\u0001`, 2000) + `"}`:         "configuration",
	`"unheard_of":1`: "unheard_of",
}

func list(n int, item func(int) string) string {
	var items []string
	for i := range n {
		items = append(items, item(i))
	}
	return strings.Join(items, ",")
}

// TestRefusedConsumers: the gate refuses consumers with other fields than the permitted
// ones, or with values out of bounds, and requests that it cannot parse. The server would
// read on after the end of the JSON, and merge the values.
func TestRefusedConsumers(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	send := func(subject, body, field string) {
		t.Helper()
		m, err := f.client.Request("$JS.API.CONSUMER."+subject, []byte(body), patience)
		check(t, err)
		var r struct{ Error *jetstream.APIError }
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Error == nil || r.Error.Code != 400 || !strings.Contains(r.Error.Description, field) {
			t.Errorf("%.100s: the error does not name %s: %.300s", body, field, m.Data)
		}
	}
	refuse := func(subject, config, field string) {
		t.Helper()
		send(subject, `{"stream_name":"`+log+`","config":{`+config+`}}`, field)
	}
	for config, field := range refusedConfigs {
		refuse("CREATE."+log, config, field)
		refuse("CREATE."+log+".x", config, field)
		refuse("DURABLE.CREATE."+log+".x", `"durable_name":"x",`+config, field)
	}
	for _, name := range []string{strings.Repeat("x", 300), "a b", `x\r\nPUB y`, "x.y", "*", schema.ServerConsumer + "x"} {
		refuse("CREATE."+log, `"name":"`+name+`"`, "name")
	}
	refuse("CREATE."+log+"."+schema.ServerConsumer+"x", "", "name")
	refuse("CREATE."+log+"."+schema.ReaderConsumer+"x", `"durable_name":"`+schema.ReaderConsumer+`x"`, "durable_name")
	refuse("CREATE."+log+"."+schema.ReaderConsumer+"x", `"inactive_threshold":3600000000000`, "inactive_threshold")
	// A push consumer delivers where its creator says, also after an update.
	js := jetStream(t, f.client)
	_, err := js.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "pull", AckPolicy: jetstream.AckExplicitPolicy})
	check(t, err)
	for _, target := range append(targets, "anything", "_INBOX", "_INBOX*", "_inbox.x", " _INBOX.x") {
		for _, key := range []string{`"deliver_subject"`, `"Deliver_Subject"`, `"deliver_subject":"_INBOX.x","DELIVER_SUBJECT"`} {
			config := fmt.Sprintf(`%s:%q,"ack_policy":"none","headers_only":true,"idle_heartbeat":100000000`, key, target)
			refuse("CREATE."+log+".push", `"name":"push",`+config, "")
			refuse("DURABLE.CREATE."+log+".pull", `"durable_name":"pull",`+config, "")
		}
	}
	push := `"config":{"deliver_subject":"` + targets[3] + `","ack_policy":"none","idle_heartbeat":100000000}}`
	for _, body := range []string{
		``, `x`, `[]`, `{"stream_name":"LAPSE_main"`, `{"stream_name":"LAPSE_main","config":[]}`,
		`{"stream_name":"LAPSE_main","config":{"deliver_subject":["` + targets[3] + `"]}}`,
		`{"stream_name":"LAPSE_main",` + strings.Replace(push, "100000000", `"x"`, 1),
		`{"stream_name":"LAPSE_main",` + push + ` {}`, `{} {"stream_name":"LAPSE_main",` + push,
		`{"stream_name":"LAPSE_main","unknown":1,` + push, `{"stream_name":"LAPSE_main_MUTATIONS","config":{"ack_policy":"none"}}`,
	} {
		send("CREATE."+log, body, "")
	}
	if n := f.consumers(t); n != 1 {
		t.Errorf("%d consumers", n)
	}
	f.untouched(t)
}

// consumers returns the number of consumers of the log.
func (f *fixture) consumers(t *testing.T) int {
	t.Helper()
	s, err := f.JS.Stream(ctx(t), log)
	check(t, err)
	return s.CachedInfo().State.Consumers
}

// TestOrdinaryConsumers: consumers as applications and tools request them can be created,
// created again unchanged, and looked up.
func TestOrdinaryConsumers(t *testing.T) { newServers(t, testOrdinaryConsumers) }

func testOrdinaryConsumers(t *testing.T, f *fixture) {
	js := jetStream(t, f.client)
	start, pause := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for name, c := range map[string]jetstream.ConsumerConfig{
		"plain":      {},
		"durable":    {Durable: "d", Description: "mails", Metadata: map[string]string{"team": "mail"}},
		"acks":       {Durable: "d", AckPolicy: jetstream.AckAllPolicy, AckWait: time.Minute, MaxDeliver: 5, MaxAckPending: 200, MaxWaiting: 128},
		"many":       {Durable: "d", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000},
		"backoff":    {Durable: "d", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 4, BackOff: []time.Duration{time.Second, time.Minute, time.Hour}},
		"filters":    {Durable: "d", FilterSubjects: []string{db.Events() + "orders.>", db.Events() + "carts.>"}},
		"last":       {Durable: "d", FilterSubject: db.Events() + ">", DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy},
		"sequence":   {Durable: "d", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 2},
		"time":       {Durable: "d", DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &start},
		"headers":    {Durable: "d", HeadersOnly: true, ReplayPolicy: jetstream.ReplayOriginalPolicy, SampleFrequency: "100%"},
		"requests":   {Durable: "d", MaxRequestBatch: 100, MaxRequestExpires: time.Minute, MaxRequestMaxBytes: 1 << 20},
		"ephemeral":  {Name: "e"},
		"inactive":   {Name: "e", InactiveThreshold: time.Hour, MemoryStorage: true, Replicas: 1},
		"paused":     {Durable: "d", PauseUntil: &pause},
		"priorities": {Durable: "d", PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"jobs"}},
		"pinned":     {Durable: "d", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"jobs"}, PinnedTTL: time.Minute},
	} {
		made, err := js.CreateConsumer(ctx(t), log, c)
		if err != nil {
			t.Fatal(name, err)
		}
		if made := made.CachedInfo().Name; c.Durable != "" || c.Name != "" {
			if _, err := js.CreateConsumer(ctx(t), log, c); err != nil {
				t.Error(name, "again:", err)
			}
			if _, err := js.CreateOrUpdateConsumer(ctx(t), log, c); err != nil {
				t.Error(name, "created or updated:", err)
			}
			if _, err := js.UpdateConsumer(ctx(t), log, c); err != nil {
				t.Error(name, "updated:", err)
			}
			if _, err := js.Consumer(ctx(t), log, made); err != nil {
				t.Error(name, err)
			}
		}
		if err := js.DeleteConsumer(ctx(t), log, made.CachedInfo().Name); err != nil {
			t.Fatal(name, err)
		}
	}
	for name, c := range map[string]jetstream.ConsumerConfig{
		"push":  {Durable: "d", DeliverSubject: "_INBOX.x.y", AckPolicy: jetstream.AckExplicitPolicy, DeliverGroup: "q", RateLimit: 1 << 20},
		"flow":  {Durable: "d", DeliverSubject: "_INBOX.x.y", AckPolicy: jetstream.AckNonePolicy, FlowControl: true, IdleHeartbeat: time.Second},
		"beats": {Durable: "d", DeliverSubject: "_INBOX.x.y", AckPolicy: jetstream.AckAllPolicy, IdleHeartbeat: time.Second},
	} {
		for range 2 {
			if _, err := js.CreateOrUpdatePushConsumer(ctx(t), log, c); err != nil {
				t.Error(name, err)
			}
		}
		if err := js.DeleteConsumer(ctx(t), log, "d"); err != nil {
			t.Fatal(name, err)
		}
	}
	if _, err := js.UpdateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "nobody"}); !errors.Is(err, jetstream.ErrConsumerDoesNotExist) {
		t.Error(err)
	}
}

// TestConsumerEdits: clients edit the description, metadata, filter and acknowledgement of
// a consumer by an update, and nothing else. A request to create it changes nothing.
func TestConsumerEdits(t *testing.T) { newServers(t, testConsumerEdits) }

func testConsumerEdits(t *testing.T, f *fixture) {
	js := jetStream(t, f.client)
	was := jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: db.Events() + "orders.>", AckWait: time.Minute}
	config := func() string {
		t.Helper()
		now, err := js.Consumer(ctx(t), log, "billing")
		check(t, err)
		text, _ := json.Marshal(now.CachedInfo().Config)
		return string(text)
	}
	legacy := func(c jetstream.ConsumerConfig) error {
		text, _ := json.Marshal(c)
		m, err := f.client.Request("$JS.API.CONSUMER.DURABLE.CREATE."+log+".billing", fmt.Appendf(nil, `{"stream_name":%q,"config":%s}`, log, text), patience)
		if err != nil {
			return err
		}
		var r struct{ Error *jetstream.APIError }
		if err := json.Unmarshal(m.Data, &r); err != nil || r.Error == nil {
			return err
		}
		return r.Error
	}
	for field, change := range map[string]struct {
		to       func(*jetstream.ConsumerConfig)
		editable bool
	}{
		"filter": {func(c *jetstream.ConsumerConfig) { c.FilterSubject = db.Events() + "carts.>" }, true},
		"filters": {func(c *jetstream.ConsumerConfig) {
			c.FilterSubject, c.FilterSubjects = "", []string{db.Events() + "a.>", db.Events() + "b.>"}
		}, true},
		"none":     {func(c *jetstream.ConsumerConfig) { c.FilterSubject = "" }, true},
		"ack wait": {func(c *jetstream.ConsumerConfig) { c.AckWait = 0 }, true},
		"deliver":  {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 1 }, true},
		"back-off": {func(c *jetstream.ConsumerConfig) {
			c.BackOff, c.MaxDeliver = []time.Duration{time.Second, time.Minute}, 3
		}, true},
		"pending":     {func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 1 }, true},
		"metadata":    {func(c *jetstream.ConsumerConfig) { c.Metadata = map[string]string{"x": "y"} }, true},
		"description": {func(c *jetstream.ConsumerConfig) { c.Description = "x" }, true},
		"headers":     {func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }, false},
		"inactive":    {func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Millisecond }, false},
		"rate":        {func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 }, false},
		"policy":      {func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }, false},
	} {
		c := was
		change.to(&c)
		for how, edit := range map[string]func() error{
			"create": func() error { _, err := js.CreateConsumer(ctx(t), log, c); return err },
			"either": func() error { _, err := js.CreateOrUpdateConsumer(ctx(t), log, c); return err },
			"update": func() error { _, err := js.UpdateConsumer(ctx(t), log, c); return err },
			"legacy": func() error { return legacy(c) },
		} {
			must(t)(js.CreateOrUpdateConsumer(ctx(t), log, was))
			before, err := config(), edit()
			switch after := config(); {
			case change.editable && how != "create":
				if err != nil || after == before {
					t.Errorf("%s, %s: %v", field, how, err)
				}
				if _, err := js.CreateConsumer(ctx(t), log, c); err != nil {
					t.Errorf("%s, %s: another configuration than was given: %v, %s", field, how, err, after)
				}
			case !errors.Is(err, jetstream.ErrConsumerExists) || !strings.Contains(err.Error(), "use another name"):
				t.Errorf("%s, %s: %v", field, how, err)
			case after != before:
				t.Errorf("%s, %s: changed from\n%s\nto\n%s", field, how, before, after)
			}
		}
	}
	_, err := js.CreateOrUpdateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000})
	if now := config(); err != nil || !strings.Contains(now, `"max_ack_pending":1000,`) {
		t.Errorf("more than the limit: %v, %s", err, now)
	}
}

// TestConsumerOlderThanLimits: a consumer from before there were limits is found with its
// configuration.
func TestConsumerOlderThanLimits(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	js := jetStream(t, f.client)
	c := jetstream.ConsumerConfig{Durable: "old", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000}
	must(t)(f.JS.CreateConsumer(ctx(t), log, c))
	for range 2 {
		must(t)(js.CreateOrUpdateConsumer(ctx(t), log, c))
	}
}

// TestLimitOfConsumers: clients' consumers have a limit well below the server's, over all
// clients and gates. Short-lived readers have a limit of their own.
func TestLimitOfConsumers(t *testing.T) {
	t.Parallel()
	const limit, readers = 512, 128
	f := newServer(t)
	const gates = 3
	for range gates - 1 {
		end, err := f.OpenGate()
		check(t, err)
		t.Cleanup(end)
	}
	var made [2]atomic.Int64
	var all sync.WaitGroup
	for client := range 4 {
		nc := f.connect(t)
		js := jetStream(t, nc)
		all.Go(func() {
			for kind, limit := range []int{limit, readers} {
				for n := range limit/4 + 3 {
					c := jetstream.ConsumerConfig{Durable: fmt.Sprintf("app-%d-%d", client, n)}
					if kind == 1 {
						c = jetstream.ConsumerConfig{Name: schema.ReaderConsumer + fmt.Sprint(client, "-", n), InactiveThreshold: time.Minute}
					} else if n%2 == 0 {
						c = jetstream.ConsumerConfig{Name: fmt.Sprintf("short-%d-%d", client, n), InactiveThreshold: time.Minute}
					}
					_, err := js.CreateConsumer(ctx(t), log, c)
					switch {
					case err == nil:
						made[kind].Add(1)
					case !errors.Is(err, jetstream.ErrMaximumConsumersLimit):
						t.Errorf("beyond the limit: %v", err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	for kind, limit := range []int64{limit, readers} {
		if n := made[kind].Load(); n < limit || n > limit+gates-1 {
			t.Errorf("%d consumers, the limit is %d", n, limit)
		}
	}

	// At the limit, creating an existing consumer finds it, and lapse can read on.
	js := jetStream(t, f.client)
	must(t)(js.CreateOrUpdateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "app-0-1"}))
	must(t)(f.JS.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Name: schema.ServerConsumer + "x"}))
	// One removed makes room for one, which need not be durable.
	for range gates {
		names := namesOf(t, js)
		check(t, js.DeleteConsumer(ctx(t), log, names[slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, "app-1-") })]))
	}
	must(t)(js.OrderedConsumer(ctx(t), log, jetstream.OrderedConsumerConfig{}))
}

// namesOf lists the consumers of the log as a client, page by page.
func namesOf(t *testing.T, js jetstream.JetStream) (names []string) {
	t.Helper()
	for total := 1; len(names) < total; {
		m, err := js.Conn().Request("$JS.API.CONSUMER.NAMES."+log, fmt.Appendf(nil, `{"offset":%d}`, len(names)), patience)
		var page struct {
			Total     int
			Consumers []string
		}
		if err != nil || json.Unmarshal(m.Data, &page) != nil || len(page.Consumers) == 0 {
			t.Fatalf("%s, %v", m.Data, err)
		}
		total, names = page.Total, append(names, page.Consumers...)
	}
	return names
}

// TestAuditorPullsOnlyOwnConsumers: a client with the inboxes of an auditor gets messages only from its
// own consumers, whatever inbox it names, and an auditor's request deletes no others.
func TestAuditorPullsOnlyOwnConsumers(t *testing.T) { newServers(t, testAuditorPullsOnlyOwnConsumers) }

func testAuditorPullsOnlyOwnConsumers(t *testing.T, f *fixture) {
	js := jetStream(t, f.client)
	c := jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy}
	billing, err := js.CreateConsumer(ctx(t), log, c)
	check(t, err)
	nc := f.connect(t, nats.CustomInboxPrefix("_INBOX.auditor"))
	auditor := jetStream(t, nc)
	for range 3 {
		m, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT."+log+".billing", []byte(`{"batch":4,"expires":1000000000}`), patience)
		if err != nil || m.Header.Get("Status") != "409" || !strings.Contains(m.Header.Get("Description"), "its own") {
			t.Errorf("got %+v, %v", m, err)
		}
		check(t, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+log+".billing", nats.NewInbox(), []byte(`{"batch":4,"expires":1000000000}`)))
	}
	if _, err := auditor.CreateOrUpdateConsumer(ctx(t), log, c); !errors.Is(err, jetstream.ErrConsumerExists) {
		t.Errorf("the auditor makes the consumer of another its own: %v", err)
	}
	if _, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT."+log+".nobody", []byte(`{"batch":1}`), patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("got %v", err)
	}
	own, err := auditor.OrderedConsumer(ctx(t), log, jetstream.OrderedConsumerConfig{})
	check(t, err)
	got, err := own.Fetch(4, jetstream.FetchMaxWait(patience))
	check(t, err)
	n := 0
	for range got.Messages() {
		n++
	}
	if n != 4 || got.Error() != nil {
		t.Errorf("the auditor reads %d of 4, %v", n, got.Error())
	}
	for name, want := range map[string]string{"billing": "its own", "nobody": "not found", own.CachedInfo().Name: `"success":true`} {
		if m, err := nc.Request("$JS.API.CONSUMER.DELETE."+log+"."+name+".auditor", nil, patience); err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("delete %s: %+v, %v", name, m, err)
		}
	}
	if info, err := billing.Info(ctx(t)); err != nil || info.Delivered.Consumer != 0 || info.NumPending != 4 {
		t.Errorf("a message was delivered: %+v, %v", info, err)
	}
}
