package gate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// operation is a request of the JetStream API.
type operation struct {
	subject string // as the server subscribes to it; its first * is the stream
	reply   string // type of the reply
	handle  func(g *Gate, m *nats.Msg, o operation)
}

// operations has all requests of the JetStream API but $JS.API.INFO, which NATS answers:
// each gets a reply at once, or the client waits for its time-out.
var operations = []operation{
	{server.JSApiStreams, server.JSApiStreamNamesResponseType, (*Gate).names},
	{server.JSApiStreamList, server.JSApiStreamListResponseType, (*Gate).list},
	{server.JSApiStreamInfo, server.JSApiStreamInfoResponseType, (*Gate).stream},
	{server.JSApiMsgGet, server.JSApiMsgGetResponseType, ofLog((*Gate).call)},
	{server.JSDirectMsgGet, "", (*Gate).direct},
	{server.JSDirectGetLastBySubject, "", (*Gate).direct},

	{server.JSApiConsumerCreate, server.JSApiConsumerCreateResponseType, ofLog((*Gate).create)},
	{server.JSApiConsumerCreateEx, server.JSApiConsumerCreateResponseType, ofLog((*Gate).create)},
	{server.JSApiDurableCreate, server.JSApiConsumerCreateResponseType, ofLog((*Gate).create)},
	{server.JSApiConsumers, server.JSApiConsumerNamesResponseType, ofLog((*Gate).call)},
	{server.JSApiConsumerList, server.JSApiConsumerListResponseType, ofLog((*Gate).call)},
	{server.JSApiConsumerInfo, server.JSApiConsumerInfoResponseType, ofLog((*Gate).call)},
	{server.JSApiConsumerDelete, server.JSApiConsumerDeleteResponseType, ofLog((*Gate).change)},
	{server.JSApiConsumerPause, server.JSApiConsumerPauseResponseType, ofLog((*Gate).change)},
	{server.JSApiConsumerUnpin, server.JSApiConsumerUnpinResponseType, ofLog((*Gate).change)},
	{fmt.Sprintf(server.JSApiConsumerResetT, "*", "*"), server.JSApiConsumerResetResponseType, ofLog((*Gate).change)},
	{fmt.Sprintf(server.JSApiRequestNextT, "*", "*"), "", (*Gate).pull},

	{server.JSApiStreamCreate, server.JSApiStreamCreateResponseType, (*Gate).refuseCreate},
	{server.JSApiStreamUpdate, server.JSApiStreamUpdateResponseType, (*Gate).refuse},
	{server.JSApiStreamDelete, server.JSApiStreamDeleteResponseType, (*Gate).refuse},
	{server.JSApiStreamPurge, server.JSApiStreamPurgeResponseType, (*Gate).refuse},
	{server.JSApiMsgDelete, server.JSApiMsgDeleteResponseType, (*Gate).refuse},
	{server.JSApiStreamSnapshot, server.JSApiStreamSnapshotResponseType, (*Gate).refuse},
	{server.JSApiStreamRestore, server.JSApiStreamRestoreResponseType, (*Gate).refuseCreate},
	{server.JSApiStreamRemovePeer, server.JSApiStreamRemovePeerResponseType, (*Gate).refuse},
	{server.JSApiStreamEvacuatePeer, server.JSApiStreamEvacuatePeerResponseType, (*Gate).refuse},
	{server.JSApiStreamCancelMove, server.JSApiStreamCancelMoveResponseType, (*Gate).refuse},
	{server.JSApiStreamLeaderStepDown, server.JSApiStreamLeaderStepDownResponseType, (*Gate).refuse},
	{server.JSApiConsumerLeaderStepDown, server.JSApiConsumerLeaderStepDownResponseType, (*Gate).refuse},
	{server.JSApiConsumerRemovePeer, server.JSApiConsumerRemovePeerResponseType, (*Gate).refuse},
	{server.JSApiConsumerEvacuatePeer, server.JSApiConsumerEvacuatePeerResponseType, (*Gate).refuse},
	{server.JSApiLeaderStepDown, server.JSApiLeaderStepDownResponseType, (*Gate).refuse},
	{server.JSApiRemoveServer, server.JSApiMetaServerRemoveResponseType, (*Gate).refuse},
	{server.JSApiEvacuateServer, server.JSApiMetaServerEvacuateResponseType, (*Gate).refuse},
	{server.JSApiMetaRescue, server.JSApiMetaRescueResponseType, (*Gate).refuse},
	{server.JSApiAccountPurge, server.JSApiAccountPurgeResponseType, (*Gate).refuse},
	{server.JSApiServerStreamMove, server.JSApiStreamUpdateResponseType, (*Gate).refuse},
	{server.JSApiServerStreamCancelMove, server.JSApiStreamUpdateResponseType, (*Gate).refuse},
}

// ofLog refuses requests for streams other than the log.
func ofLog(handle func(*Gate, *nats.Msg, operation)) func(*Gate, *nats.Msg, operation) {
	return func(g *Gate, m *nats.Msg, o operation) {
		if o.stream(m) != g.db.LogStream() {
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
	switch stream := o.stream(m); {
	case stream == g.db.MutationStream():
		g.fail(m, o, fmt.Errorf("clients may publish to stream %s and see its state, and read %s", stream, g.db.LogStream()))
	case stream != g.db.LogStream() && stream != "":
		g.fail(m, o, fmt.Errorf("there is no stream %s for clients: they may read stream %s; %s", stream, g.db.LogStream(), elsewhere))
	default:
		g.fail(m, o, fmt.Errorf("clients may read stream %s, and not change streams, their replicas or servers", g.db.LogStream()))
	}
}

// refuseCreate replies that clients cannot have streams.
func (g *Gate) refuseCreate(m *nats.Msg, o operation) {
	g.fail(m, o, errors.New("clients cannot create streams here; "+elsewhere))
}

// elsewhere is what to do for a stream of one's own.
const elsewhere = "for streams, key-value buckets and object stores of your own use another NATS server"

// refusePublish replies to a message that was meant for a stream.
func (g *Gate) refusePublish(m *nats.Msg) {
	why := "no stream stores this subject; " + elsewhere
	if strings.HasPrefix(m.Subject, g.db.Events()) {
		why = fmt.Sprintf("only lapse publishes events: publish a mutation to %s…", g.db.Mutations())
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
