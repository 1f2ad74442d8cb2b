package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// Errors have one form to callers, coded errors of the contract, wherever they come from:
// lapse's replies, NATS, JetStream. Each says what to do; the cause is wrapped, so
// errors.Is finds both ErrUnavailable and nats.ErrNoResponders. Only a cancelled context
// and a DecodeError are passed on as they are.

// Error is the coded error of a refused request or a failure, for errors.As. A call that
// fails without one failed by its context or with a *DecodeError.
type Error = schema.Error

// Errors of calls, for errors.Is. A write was not applied, except perhaps with ErrTimeout.
// It is applied with a *DecodeError, and perhaps if its context was cancelled.
var (
	ErrBadRequest         = schema.ErrBadRequest
	ErrBadTTL             = schema.ErrBadTTL
	ErrBadID              = schema.ErrBadID
	ErrBadQuery           = schema.ErrBadQuery
	ErrCollectionNotFound = schema.ErrCollectionNotFound
	ErrDocumentNotFound   = schema.ErrDocumentNotFound // never created, deleted or expired
	ErrVersionNotFound    = schema.ErrVersionNotFound  // no such version, or the log no longer has its content
	ErrSnapshotNotFound   = schema.ErrSnapshotNotFound
	ErrDatabaseNotFound   = schema.ErrDatabaseNotFound // of TestClock
	ErrDatabaseExists     = schema.ErrDatabaseExists   // of TestClock
	ErrCollectionExists   = schema.ErrCollectionExists
	ErrDocumentExists     = schema.ErrDocumentExists
	ErrDocumentHeld       = schema.ErrDocumentHeld // release it first
	ErrNotHeld            = schema.ErrNotHeld
	ErrPreconditionFailed = schema.ErrPreconditionFailed // the version is not that of IfMatch
	ErrTooLarge           = schema.ErrTooLarge
	ErrFailedDependency   = schema.ErrFailedDependency // refused because another operation of the atomic batch was refused
	ErrOverloaded         = schema.ErrOverloaded       // try again later
	ErrUnavailable        = schema.ErrUnavailable      // no process serves the database
	ErrTimeout            = schema.ErrTimeout          // no answer in time, or none that can be received; a write may have been applied, see MsgID
)

// failure is a coded error with its cause; errors.Is finds both.
type failure struct {
	coded *Error
	cause error
}

func (f *failure) Error() string   { return f.coded.Error() }
func (f *failure) Unwrap() []error { return []error{f.coded, f.cause} }

// transportError maps an error of NATS to a coded error that says what to do. It returns
// coded errors, DecodeErrors and context.Canceled unchanged.
func (c *Client) transportError(err error) error {
	_, coded := errors.AsType[*Error](err)
	_, decoding := errors.AsType[*DecodeError](err)
	if coded || decoding || errors.Is(err, context.Canceled) {
		return err
	}
	return &failure{coded: c.codeOf(err), cause: err}
}

// lost returns the error of a request that was sent: ErrTimeout if its answer
// is lost, since a write may have been applied, but ErrTooLarge if NATS closed the
// connection because of its size.
func (c *Client) lost(err error, m *nats.Msg) error {
	if why := c.nc.LastError(); errors.Is(err, nats.ErrConnectionClosed) && why != nil && strings.Contains(why.Error(), "Maximum Payload Violation") &&
		int64(m.Size()-len(m.Subject)-len(m.Reply)) > c.nc.MaxPayload() {
		return nats.ErrMaxPayload
	}
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, jetstream.ErrInvalidJSAck) {
		return &failure{cause: err, coded: ErrTimeout.With("the answer of database %q was lost with the connection: try again; a write may have been applied", c.database)}
	}
	return err
}

// loginRefused returns why NATS lets the connection not in again, nil if it has not refused it.
func (c *Client) loginRefused() error {
	if c.nc == nil || c.nc.IsConnected() || !IsLogin(c.nc.LastError()) {
		return nil
	}
	return c.nc.LastError()
}

// IsLogin reports whether an error is that NATS refuses a login, as of credentials that have
// ended or were revoked.
func IsLogin(err error) bool {
	for _, refusal := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// inGo names functions of this package where messages of lapse name its operations.
var inGo = strings.NewReplacer("with collection.create", "with CreateCollection", "with collection.replace", "with ReplaceCollection",
	"with document.replace or document.upsert", "with Replace or Upsert")

// timeout reports whether there was no reply in time.
func timeout(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
}

// codeOf maps an error of NATS to a coded one. The order counts: a time-out of a connection
// that the server has shut out is about credentials, not about lapse.
func (c *Client) codeOf(err error) *Error {
	failed, connecting := errors.AsType[*net.OpError](err)
	switch {
	case connecting && failed.Timeout() && failed.Op == "read":
		return ErrUnavailable.With("the server at %s accepts the connection and sends nothing: try again if it is NATS and busy, or connect to another address", c.url)
	case connecting && failed.Timeout():
		return ErrUnavailable.With("the NATS server at %s does not answer in time: try again, or connect to another address", c.url)
	case errors.Is(err, nats.ErrNoResponders):
		return ErrUnavailable.With("no process serves database %q here now: try again if a standby is taking over, or start `lapse serve --database %s`, or connect to the NATS server and account that has it", c.database, c.database)
	case timeout(err) && c.loginRefused() != nil:
		return ErrTimeout.With("no answer from database %q: the NATS server at %s refuses these credentials (%v): renew them, the connection goes on trying; a write may have been applied", c.database, c.url, c.loginRefused())
	case timeout(err):
		return ErrTimeout.With("no answer from database %q in time: try again; a write may have been applied", c.database)
	case errors.Is(err, nats.ErrMaxPayload):
		return ErrTooLarge.With("the request exceeds max_payload of this connection, by the NATS server, the account or the user (%d bytes): send less at once", c.nc.MaxPayload())
	case errors.Is(err, nats.ErrNoServers):
		return ErrUnavailable.With("no NATS server answers at %s: start `lapse serve`, or connect to another address", c.url)
	case IsLogin(err):
		return ErrUnavailable.With("the NATS server at %s refuses these credentials: connect with others", c.url)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, jetstream.ErrMsgIteratorClosed):
		return ErrUnavailable.With("the connection to NATS is closed: connect again")
	case c.nc == nil:
		return ErrUnavailable.With("cannot connect to NATS at %s (%v): check the address, TLS and credentials", c.url, err)
	}
	return ErrUnavailable.With("NATS: %v", err)
}

// unimported returns the error of a reader whose account has no log, nil if lapse does not
// answer the account either: then the log may be missing for any account.
func (c *Client) unimported(ctx context.Context, err error) error {
	if c.importsLog() || !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, jetstream.ErrJetStreamNotEnabled) && !errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(c.timeout, time.Second))
	defer cancel()
	if _, unserved := c.Status(ctx); unserved != nil {
		return nil
	}
	return &failure{cause: err, coded: ErrUnavailable.With("database %q is served here, but this account has no log at %s>: give the prefix at which it imports the log (--js-api-prefix, jetstream_api_prefix of a NATS context, client.APIPrefix), or import what `lapse config account` prints", c.database, c.api())}
}

// feedError maps errors of JetStream to coded errors, and all others as transportError.
func (c *Client) feedError(err error) error {
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		err = &failure{cause: err, coded: ErrUnavailable.With("no stream accepts mutations of database %q here now: try again if NATS elects a leader, or start `lapse serve --database %s`, or connect to the NATS server and account that has it", c.database, c.database)}
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = &failure{cause: err, coded: ErrUnavailable.With("database %q has no log at %s>: start `lapse serve --database %s`, connect to the NATS server and account that has it, or give the prefix at which this account imports it (--js-api-prefix, jetstream_api_prefix of a NATS context, client.APIPrefix)", c.database, c.api(), c.database)}
	case c.js != nil && c.js.Options().Domain != "" && (errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled)):
		err = &failure{cause: err, coded: ErrUnavailable.With("nobody answers requests to JetStream of domain %q: leave the domain out as a client of lapse, whose gate has none, or name the domain of the log", c.js.Options().Domain)}
	case c.js != nil && c.importsLog() && (errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled)):
		err = &failure{cause: err, coded: ErrUnavailable.With("nobody answers requests to JetStream at %[1]s> now: try again if NATS or lapse restarts, or import $JS.API.STREAM.INFO.%[2]s, $JS.API.STREAM.MSG.GET.%[2]s and $JS.API.CONSUMER.CREATE.%[2]s.> there, and what else `lapse config account` prints", c.api(), c.database.LogStream())}
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		err = &failure{cause: err, coded: ErrUnavailable.With("this NATS server and account have no JetStream: connect to the one that has the log of database %q", c.database)}
	case errors.Is(err, nats.ErrNoResponders):
		err = &failure{cause: err, coded: ErrUnavailable.With("nobody answers requests to JetStream here now: try again if NATS or lapse restarts, or connect to the NATS server and account that has the log of database %q", c.database)}
	case timeout(err) && c.loginRefused() == nil:
		err = &failure{cause: err, coded: ErrTimeout.With("JetStream did not answer in time: try again; its streams may be without a leader for some seconds")}
	case errors.Is(err, jetstream.ErrInvalidConsumerName):
		err = &failure{cause: err, coded: ErrBadRequest.With("the durable name is not legal: use letters, digits, _ and -")}
	case errors.Is(err, jetstream.ErrConsumerDeleted), errors.Is(err, jetstream.ErrConsumerNotFound):
		err = &failure{cause: err, coded: ErrUnavailable.With("the consumer of the feed was deleted: continue from the last sequence")}
	case errors.Is(err, jetstream.ErrMaximumConsumersLimit):
		stream := c.database.LogStream()
		err = &failure{cause: err, coded: ErrUnavailable.With("stream %s has reached its limit of consumers: remove unused ones (nats consumer ls %s, nats consumer rm), and try again", stream, stream)}
	case errors.As(err, &refused) && refused.Code == 400:
		err = &failure{cause: err, coded: ErrBadRequest.With("JetStream refused to read the feed: %s", refused.Description)}
	}
	return c.transportError(err)
}
