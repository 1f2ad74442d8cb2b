package embedded

import (
	"fmt"
	"net"
	"strconv"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// forNATS returns the options of the NATS server: those of lapse, its accounts, and what
// the user's file adds, which it reads.
func (o *Options) forNATS(who credentials, host string, port int, room int64) (*server.Options, error) {
	so := &server.Options{
		ServerName:         "lapse-" + string(o.Databases[0]),
		Host:               host,
		Port:               port,
		MaxPayload:         maxPayload,
		MaxPending:         maxPending,
		WriteTimeout:       server.WriteTimeoutPolicyRetry, // slow readers are kept
		AuthTimeout:        authTimeout.Seconds(),
		MaxConn:            maxConnections,
		MaxSubs:            maxSubscriptions,
		MaxSubTokens:       maxTokens,
		JetStream:          true,
		StoreDir:           o.StoreDir,
		JetStreamMaxMemory: maxMemory,
		JetStreamMaxStore:  room,
		SyncAlways:         o.SyncAlways,
		JetStreamLimits:    server.JSLimitOpts{MaxBatchSize: AtomicBatch, DefaultMaxConsumers: -1}, // the gate limits those of clients
		NoSublistCache:     true,
		NoSigs:             true, // signals are the command's business
		NoLog:              true, // o.Logger gets the log lines
	}
	if o.Operator != "" && !nkeys.IsValidPublicUserKey(o.Operator) {
		return nil, &ConfigError{fmt.Sprintf("--operator-nkey %q: give the public nkey of a user, which begins with U", o.Operator)}
	}
	ours := accountsConfig(o.Databases, who, o.Operator)
	if o.Config == "" {
		if err := so.ProcessConfigString(ours); err != nil {
			return nil, fmt.Errorf("embedded: accounts: %w", err)
		}
		return so, nil
	}
	file, err := readFile(o.Config, o.Databases)
	if err != nil {
		return nil, err
	}
	merged, err := conf.Parse(ours)
	if err != nil {
		return nil, fmt.Errorf("embedded: accounts: %w", err)
	}
	file.merge(merged)
	var text written
	text.write("", merged, place{})
	if err := so.ProcessConfigString(text.String()); err != nil {
		return nil, text.explain(file, err)
	}
	return so, file.check(so)
}

// Access says where, beside Options.Listen, clients connect, and who.
type Access struct {
	Anonymous bool   // at Options.Listen without credentials
	WebSocket string // HOST:PORT at which WebSocket clients connect without credentials; "" if none do
}

// Check returns who may connect with these options. An error is a *ConfigError: the
// server cannot start with the file.
func (o Options) Check() (Access, error) {
	so, err := o.forNATS(newCredentials(), "", 0, 0)
	if err != nil {
		return Access{}, err
	}
	if o.Config != "" {
		ns, err := server.NewServer(so) // which checks more; it is not started
		if err != nil {
			return Access{}, &ConfigError{fmt.Sprintf("--nats-config %s: %v", o.Config, err)}
		}
		ns.Shutdown()
	}
	a := Access{Anonymous: so.NoAuthUser != ""}
	if ws := so.Websocket; ws.Port != 0 && (ws.NoAuthUser != "" || a.Anonymous) {
		a.WebSocket = net.JoinHostPort(ws.Host, strconv.Itoa(ws.Port))
	}
	return a, nil
}

// Reload reads the file of Options.Config again and applies it: certificates, users and
// accounts; connections of users that are left stay. After an error, which says why,
// nothing has changed.
func (s *Server) Reload() error {
	if _, err := s.options.Check(); err != nil {
		return err
	}
	// Twice: NATS starts the imports of an account that is new with the second.
	for range 2 {
		so, err := s.configured()
		if err != nil {
			return err
		}
		if err := s.nats.ReloadOptions(so); err != nil {
			return &ConfigError{fmt.Sprintf("--nats-config %s: %v: restart to change it", s.options.Config, err)}
		}
	}
	return nil
}
