package eventlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// A full JetStream is not a broken one: an operator raises the limit and lapse goes on by
// itself. So ErrFull is told apart from other errors of appends. That takes memory: only
// the first refusal says that the storage is full (Log.Full), later ones that there is no
// leader.

// ErrFull: JetStream refuses appends until an operator raises its storage limit.
var ErrFull = errors.New("JetStream is at its storage limit: raise max_file of the account, or max_file_store of the servers, and reload NATS (restart it if NATS_MAX_STORE sets the limit, or the log stays without a leader); lapse continues by itself")

// fullCodes are JetStream's codes for the storage limit of the account and of the server.
var fullCodes = []jetstream.ErrorCode{10002, 10023}

// errLeaderless: no server of NATS accepts the message.
var errLeaderless = errors.New("the log has no leader")

// notAvailable is JetStream's code for a stream, or a cluster, without a leader.
const notAvailable jetstream.ErrorCode = 10008

// Explain adds the cause to an error with which the log is unreachable. In a cluster, a
// full server refuses one append, then gives up the lead and is no candidate again: from
// then on the stream has no leader, and NATS no longer says why.
func (l *Log) Explain(err error) error {
	var api *jetstream.APIError
	leaderless := errors.As(err, &api) && api.ErrorCode == notAvailable || errors.Is(err, errLeaderless)
	switch {
	case errors.Is(err, ErrFull):
		return err
	case l.Full.Load() && (leaderless || Transient(err)), api != nil && slices.Contains(fullCodes, api.ErrorCode):
		return fmt.Errorf("%w (%w)", ErrFull, err)
	case leaderless:
		return fmt.Errorf("%w: most of its NATS servers are down or at their storage limit, or an election is under way: see `nats server report jetstream`", err)
	}
	return err
}

// refused returns the error with which JetStream refused the append that ends with seq.
func refused(seq uint64, api *jetstream.APIError) error {
	if slices.Contains(fullCodes, api.ErrorCode) {
		return fmt.Errorf("append %d: %w (%w)", seq, ErrFull, api)
	}
	return fmt.Errorf("append %d: %w", seq, api)
}
