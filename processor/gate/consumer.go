package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/lapsedb/lapse/schema"
)

// Limits of one consumer. Those of all of them together are in limit.go.
const (
	maxName        = 255
	maxDescription = 1 << 10
	maxMetadata    = 2 << 10 // keys and values
	maxFilters     = 64
	maxFilterBytes = 4 << 10 // of all filters
	maxBackOff     = 64
	maxGroups      = 8
	maxWaiting     = server.JSWaitQueueDefaultMax

	// maxAckPending limits the messages waiting for acknowledgement. It is the server's
	// default: the server keeps each in memory. nats.go asks for mostAckPending if its
	// user sets nothing, so up to that is accepted, and counts as maxAckPending.
	maxAckPending  = server.JsDefaultMaxAckPending
	mostAckPending = 64 << 10

	// maxConfig is the size of the configuration as JSON: a page of CONSUMER.LIST
	// has 256 of them and must fit into one message.
	maxConfig = 12 << 10

	// readerLife bounds the inactive_threshold of short-lived readers.
	readerLife = 5 * time.Minute
)

// rule limits the values of a field. must is the rest of a sentence that begins with
// the field's name. A rule without ok allows every value that the server allows.
type rule struct {
	must string
	ok   func(c *server.ConsumerConfig) bool
}

// rules has a rule for each field of a consumer that clients may set. They must leave
// out any other, such as direct.
var rules = map[string]rule{
	"Durable": {atMost(maxName), func(c *server.ConsumerConfig) bool { return len(c.Durable) <= maxName }},
	"Name": {fmt.Sprint("have ", maxName, " bytes at most, none of them a space or one of . * > / \\, and not begin with ", schema.ServerConsumer), func(c *server.ConsumerConfig) bool {
		return len(c.Name) <= maxName && !isServers(c.Name) && !strings.ContainsAny(c.Name, " \t\r\n\f.*>/\\")
	}},
	"Description":     {atMost(maxDescription), func(c *server.ConsumerConfig) bool { return len(c.Description) <= maxDescription }},
	"Metadata":        {atMost(maxMetadata), func(c *server.ConsumerConfig) bool { return size(c.Metadata) <= maxMetadata }},
	"DeliverPolicy":   {},
	"OptStartSeq":     {},
	"OptStartTime":    {},
	"AckPolicy":       {"be none, all, explicit or flow_control", func(c *server.ConsumerConfig) bool { return c.AckPolicy <= server.AckFlowControl }},
	"AckWait":         {},
	"MaxDeliver":      {},
	"BackOff":         {fmt.Sprint("have ", maxBackOff, " entries at most"), func(c *server.ConsumerConfig) bool { return len(c.BackOff) <= maxBackOff }},
	"FilterSubject":   {atMost(maxFilterBytes), func(c *server.ConsumerConfig) bool { return len(c.FilterSubject) <= maxFilterBytes }},
	"FilterSubjects":  {fmt.Sprint("have ", maxFilters, " subjects at most, of ", maxFilterBytes, " bytes together"), filtersFit},
	"ReplayPolicy":    {},
	"RateLimit":       {},
	"SampleFrequency": {"be a percentage", func(c *server.ConsumerConfig) bool { return len(c.SampleFrequency) <= len("100%") }},
	"MaxWaiting":      {fmt.Sprint("be ", maxWaiting, " at most"), func(c *server.ConsumerConfig) bool { return c.MaxWaiting <= maxWaiting }},
	"MaxAckPending": {fmt.Sprint("be 1 to ", mostAckPending, ", of which ", maxAckPending, " count, or left out"), func(c *server.ConsumerConfig) bool {
		return c.AckPolicy == server.AckNone || c.MaxAckPending > 0 && c.MaxAckPending <= mostAckPending
	}},
	"FlowControl":        {},
	"HeadersOnly":        {},
	"MaxRequestBatch":    {},
	"MaxRequestExpires":  {},
	"MaxRequestMaxBytes": {},
	"DeliverSubject":     {atMost(maxName), func(c *server.ConsumerConfig) bool { return len(c.DeliverSubject) <= maxName }}, // see check
	"DeliverGroup":       {atMost(maxName), func(c *server.ConsumerConfig) bool { return len(c.DeliverGroup) <= maxName }},
	"Heartbeat":          {},
	"InactiveThreshold":  {},
	"Replicas":           {},
	"MemoryStorage":      {},
	"PauseUntil":         {},
	"PriorityGroups":     {fmt.Sprint("have ", maxGroups, " groups at most"), func(c *server.ConsumerConfig) bool { return len(c.PriorityGroups) <= maxGroups }},
	"PriorityPolicy":     {},
	"PinnedTTL":          {},
}

func atMost(bytes int) string { return fmt.Sprint("have ", bytes, " bytes at most") }

func filtersFit(c *server.ConsumerConfig) bool {
	sum := 0
	for _, filter := range c.FilterSubjects {
		sum += len(filter)
	}
	return len(c.FilterSubjects) <= maxFilters && sum <= maxFilterBytes
}

func size(metadata map[string]string) (bytes int) {
	for key, value := range metadata {
		bytes += len(key) + len(value)
	}
	return bytes
}

// readCreate reads a request for a consumer with the server's own type. It accepts
// exactly one JSON value: the server reads several, one over the other. It refuses
// unknown fields, which a newer server may know.
func readCreate(body []byte) (*server.CreateConsumerRequest, error) {
	r := new(server.CreateConsumerRequest)
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return r, nil
}

// check returns the error in a consumer's configuration, nil for none. The client gets
// replies at an inbox with the given prefix, and may have messages delivered to others with
// this prefix: not everything that is no subject of lapse is an inbox.
//
// It walks over the fields of the server's own type: a field without a rule, as one that a
// later NATS adds, must be zero until somebody has looked at what it does.
func check(c *server.ConsumerConfig, prefix string) error {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		field := v.Type().Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		rule, allowed := rules[field.Name]
		switch {
		case !allowed:
			return fmt.Errorf("%s must be left out: create a durable with ack_policy flow_control for a mirror or source, and name it there as its consumer", tag)
		case rule.ok != nil && !rule.ok(c):
			return fmt.Errorf("%s must %s", tag, rule.must)
		}
	}
	deliver := c.DeliverSubject
	switch {
	case deliver != "" && !(schema.IsInbox(deliver) && (strings.HasPrefix(deliver, schema.InboxPrefix) || strings.HasPrefix(deliver, prefix))):
		return fmt.Errorf("deliver_subject must begin with %s, or with the inbox prefix of the connection", schema.InboxPrefix)
	// Nothing else would limit the messages that wait for the client.
	case c.DeliverSubject != "" && c.AckPolicy == server.AckNone && !c.FlowControl:
		return errors.New("flow_control must be true, with an idle_heartbeat, where ack_policy is none and messages are pushed")
	case strings.HasPrefix(c.Name, schema.ReaderConsumer) && (c.Durable != "" || c.InactiveThreshold > readerLife):
		return fmt.Errorf("a name that begins with %s is for short-lived readers: leave out durable_name, and let inactive_threshold be %s at most", schema.ReaderConsumer, readerLife)
	}
	if text, err := json.Marshal(c); err != nil {
		return err
	} else if len(text) > maxConfig {
		return fmt.Errorf("the configuration has %d bytes as JSON, at most %d are allowed: shorten description, metadata or filter_subjects", len(text), maxConfig)
	}
	return nil
}

// isServers reports whether a consumer is one of lapse's own.
func isServers(name string) bool { return strings.HasPrefix(name, schema.ServerConsumer) }
