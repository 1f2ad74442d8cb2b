package gate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// operation is a request of the JetStream API: which subject it has, who may send it, and
// what the gate does with it. Each is one line of operations; nothing else in this package
// lists subjects of the API.
type operation struct {
	subject string // as the server subscribes to it; its first * is the stream
	reply   string // type of the reply
	handle  func(g *Gate, m *nats.Msg, o operation)
	by      Role // who may send it about a log, besides those that may send all of $JS.API.>

	// byConsumer is set if the consumer replies itself: nobody does for one that does
	// not exist.
	byConsumer bool
}

// operations has all requests of the JetStream API but $JS.API.INFO, which NATS answers:
// each gets a reply at once, or the client waits for its time-out. Permissions lists what
// the rest of lapse uses.
var operations = []operation{
	{subject: server.JSApiStreams, by: Processor | Bulk | Auditor | ImportClients, reply: server.JSApiStreamNamesResponseType, handle: (*Gate).names},
	{subject: server.JSApiStreamList, by: Auditor | ImportClients, reply: server.JSApiStreamListResponseType, handle: (*Gate).list},
	{subject: server.JSApiStreamInfo, by: Processor | Auditor | passed, reply: server.JSApiStreamInfoResponseType, handle: (*Gate).stream},
	{subject: server.JSApiMsgGet, by: Processor | Auditor | passed, reply: server.JSApiMsgGetResponseType, handle: ofLog((*Gate).call)},
	{subject: server.JSDirectMsgGet, by: passed, handle: (*Gate).direct},
	{subject: server.JSDirectGetLastBySubject, by: passed, handle: (*Gate).direct},

	{subject: server.JSApiConsumerCreate, by: GateLog, reply: server.JSApiConsumerCreateResponseType, handle: ofLog((*Gate).create)},
	{subject: server.JSApiConsumerCreateEx, by: Bulk | Auditor | passed, reply: server.JSApiConsumerCreateResponseType, handle: ofLog((*Gate).create)},
	{subject: server.JSApiDurableCreate, by: passed, reply: server.JSApiConsumerCreateResponseType, handle: ofLog((*Gate).create)},
	{subject: server.JSApiConsumers, by: passed, reply: server.JSApiConsumerNamesResponseType, handle: ofLog((*Gate).call)},
	{subject: server.JSApiConsumerList, by: passed, reply: server.JSApiConsumerListResponseType, handle: ofLog((*Gate).call)},
	{subject: server.JSApiConsumerInfo, by: Auditor | passed, reply: server.JSApiConsumerInfoResponseType, handle: ofLog((*Gate).call)},
	{subject: server.JSApiConsumerDelete, by: Bulk | passed, reply: server.JSApiConsumerDeleteResponseType, handle: ofLog((*Gate).change)},
	{subject: server.JSApiConsumerDelete + "." + schema.Auditor, by: Auditor, reply: server.JSApiConsumerDeleteResponseType, handle: ofLog((*Gate).deleteAudited)},
	{subject: server.JSApiConsumerPause, by: passed, reply: server.JSApiConsumerPauseResponseType, handle: ofLog((*Gate).change)},
	{subject: server.JSApiConsumerUnpin, by: passed, reply: server.JSApiConsumerUnpinResponseType, handle: ofLog((*Gate).change)},
	{subject: fmt.Sprintf(server.JSApiConsumerResetT, "*", "*"), by: passed, reply: server.JSApiConsumerResetResponseType, handle: ofLog((*Gate).change), byConsumer: true},
	{subject: fmt.Sprintf(server.JSApiRequestNextT, "*", "*"), by: Bulk | GateLog | Auditor | ImportStreams, handle: (*Gate).pull},

	{subject: server.JSApiStreamCreate, reply: server.JSApiStreamCreateResponseType, handle: (*Gate).refuseCreate},
	{subject: server.JSApiStreamUpdate, reply: server.JSApiStreamUpdateResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiStreamDelete, reply: server.JSApiStreamDeleteResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiStreamPurge, reply: server.JSApiStreamPurgeResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiMsgDelete, reply: server.JSApiMsgDeleteResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiStreamSnapshot, reply: server.JSApiStreamSnapshotResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiStreamRestore, reply: server.JSApiStreamRestoreResponseType, handle: (*Gate).refuseCreate},
	{subject: server.JSApiStreamRemovePeer, reply: server.JSApiStreamRemovePeerResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiStreamEvacuatePeer, reply: server.JSApiStreamEvacuatePeerResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiStreamCancelMove, reply: server.JSApiStreamCancelMoveResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiStreamLeaderStepDown, reply: server.JSApiStreamLeaderStepDownResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiConsumerLeaderStepDown, reply: server.JSApiConsumerLeaderStepDownResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiConsumerRemovePeer, reply: server.JSApiConsumerRemovePeerResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiConsumerEvacuatePeer, reply: server.JSApiConsumerEvacuatePeerResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiLeaderStepDown, reply: server.JSApiLeaderStepDownResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiRemoveServer, reply: server.JSApiMetaServerRemoveResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiEvacuateServer, reply: server.JSApiMetaServerEvacuateResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiMetaRescue, reply: server.JSApiMetaRescueResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiAccountPurge, reply: server.JSApiAccountPurgeResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiServerStreamMove, reply: server.JSApiStreamUpdateResponseType, handle: (*Gate).refuse},
	{subject: server.JSApiServerStreamCancelMove, reply: server.JSApiStreamUpdateResponseType, handle: (*Gate).refuse},
}

// ofLog refuses requests for streams other than a log.
func ofLog(handle func(*Gate, *nats.Msg, operation)) func(*Gate, *nats.Msg, operation) {
	return func(g *Gate, m *nats.Msg, o operation) {
		if !g.isLog(o.stream(m)) {
			g.refuse(m, o)
			return
		}
		handle(g, m, o)
	}
}

// stream returns the stream that a request is for, "" if it is for none.
func (o operation) stream(m *nats.Msg) string {
	before, _, named := strings.Cut(o.subject, "*")
	if !named {
		return ""
	}
	stream, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, before), ".")
	return stream
}

// refuse replies that clients may not do this.
func (g *Gate) refuse(m *nats.Msg, o operation) {
	stream := o.stream(m)
	db, there := g.databaseOf(stream)
	switch {
	case there && stream == db.MutationStream():
		g.fail(m, o, fmt.Errorf("clients may publish to stream %s and see its state, and read %s", stream, db.LogStream()))
	case there:
		g.fail(m, o, fmt.Errorf("clients may read stream %s, and not change streams, their replicas or servers", stream))
	case stream != "":
		g.fail(m, o, fmt.Errorf("there is no stream %s for clients: they may read stream %s; %s", stream, g.logs(), external))
	default:
		g.fail(m, o, fmt.Errorf("clients may read stream %s, and not change streams, their replicas or servers", g.logs()))
	}
}

// refuseCreate replies that clients cannot have streams.
func (g *Gate) refuseCreate(m *nats.Msg, o operation) {
	g.fail(m, o, errors.New("clients cannot create streams here; "+external))
}

// external is what to do for a stream of one's own.
const external = "for streams, key-value buckets and object stores of your own use an account of your own with JetStream, or another NATS server"

// refusePublish replies to a message that was meant for a stream.
func (g *Gate) refusePublish(m *nats.Msg) {
	why := "no stream stores this subject; " + external
	for _, db := range g.databases() {
		if strings.HasPrefix(m.Subject, db.Events()) {
			why = fmt.Sprintf("only lapse publishes events: publish a mutation to %s…", db.Mutations())
		}
	}
	g.answer(m, server.JSPubAckResponse{Error: notPermitted(errors.New(why))})
}

// fail replies with JetStream's form of an error: a header where its reply is a
// message, JSON otherwise.
func (g *Gate) fail(m *nats.Msg, o operation, why error) {
	if o.reply == "" {
		g.publish(&nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"409"}, "Description": {notPermitted(why).Description}}})
		return
	}
	g.answer(m, server.ApiResponse{Type: o.reply, Error: notPermitted(why)})
}

func notPermitted(why error) *server.ApiError {
	e := *server.NewJSBadRequestError()
	e.Description = "not permitted: " + why.Error()
	return &e
}

// errServerConsumer refuses clients a consumer of lapse.
var errServerConsumer = errors.New("lapse itself reads by consumers whose names begin with " + schema.ServerConsumer)
