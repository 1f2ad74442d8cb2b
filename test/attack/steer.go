package attack

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// Targets returns subjects that a client would like NATS to publish to: it may not
// publish to them itself, or the publishing would feed on itself. secret is that of the
// log's stream. The attacker gets it: its secrecy is the last line of defence, not the
// only one.
func Targets(db schema.DatabaseName, secret string) []string {
	log, mutations := db.LogStream(), db.MutationStream()
	return []string{
		db.Events() + "orders.DocumentCreated",
		db.Append() + "guess.orders.DocumentCreated",
		db.Append() + secret + ".orders.DocumentCreated",
		"$JS.API.STREAM.DELETE." + log,
		"$JS.API.STREAM.PURGE." + log,
		"$JS.API.STREAM.DELETE." + mutations,
		"$JS.API.STREAM.PURGE." + mutations,
		"$JS.API.CONSUMER.DELETE." + mutations + ".writer",
		"$JS.API.CONSUMER.DELETE." + log + ".standby",
		"$KV.lease.writer",
		"$KV." + db.LeaseBucket() + ".writer",
		db.Mutations() + "document.upsert.orders.x",
		db.API() + "document.upsert.orders.x",
		"_PROCESSOR.x",
		"$SRV.PING",
	}
}

// NATSRefuses reports whether NATS refuses a client's message with this reply subject.
func NATSRefuses(reply string) bool { return strings.HasPrefix(reply, "$JS.") }

// Requests returns requests that are answered, or would be if they were let through, at
// the subject that a client puts into Reply. The log should have the consumers
// everything, emptied and standby.
func Requests(db schema.DatabaseName) (requests []nats.Msg) {
	log, mutations := db.LogStream(), db.MutationStream()
	add := func(subject, body string) {
		requests = append(requests, nats.Msg{Subject: subject, Data: []byte(body)})
	}
	consumer := func(name, policy string) string {
		return fmt.Sprintf(`{"stream_name":%q,"config":{"name":%q,"durable_name":%q,"ack_policy":%q}}`, log, name, name, policy)
	}
	add(db.Mutations()+"document.upsert.orders.y", `{}`)
	add(db.API()+"document.get.orders.y", ``)
	add("$SRV.PING", ``)
	add("$JS.API.INFO", ``)
	add("$JS.API.STREAM.NAMES", ``)
	for _, ask := range []string{"LIST", "NAMES"} {
		add("$JS.API.CONSUMER."+ask+"."+log, ``)
	}
	add("$JS.API.CONSUMER.CREATE."+log, fmt.Sprintf(`{"stream_name":%q,"config":{"ack_policy":"none"}}`, log))
	add("$JS.API.CONSUMER.CREATE."+log+".mine", consumer("mine", "none"))
	add("$JS.API.CONSUMER.DURABLE.CREATE."+log+".mine", consumer("mine", "none"))
	add("$JS.API.CONSUMER.INFO."+log+".standby", ``)
	add("$JS.API.CONSUMER.INFO."+log+".nobody", ``)
	add("$JS.API.CONSUMER.DELETE."+log+".nobody", ``)
	for _, pull := range []string{``, `{"batch":100,"no_wait":true}`, `{"batch":100,"expires":100000000}`, `{"batch":100,"expires":300000000,"idle_heartbeat":100000000}`, `nonsense`} {
		for _, from := range []string{"everything", "emptied", "nobody"} {
			add("$JS.API.CONSUMER.MSG.NEXT."+log+"."+from, pull)
		}
	}
	for _, ack := range []string{"", "+ACK", "-NAK", "+NXT", `+NXT {"batch":100}`, "+TERM", "+WPI"} {
		add("$JS.ACK."+log+".everything.1.1.1.1700000000000000000.3", ack)
	}
	add("$JS.FC."+log+".everything.x", ``)
	// These are refused anyway.
	add("$JS.API.STREAM.INFO."+log, ``)
	add("$JS.API.STREAM.MSG.GET."+log, `{"seq":1}`)
	add("$JS.API.DIRECT.GET."+log, `{"seq":1}`)
	add("$JS.API.DIRECT.GET."+mutations, `{"seq":1}`)
	add("$JS.API.DIRECT.GET."+log+"."+db.Events()+"orders.DocumentCreated", ``)
	return requests
}
