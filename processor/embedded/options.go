package embedded

import (
	"fmt"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// The server's options come from three places: Options, accounts.conf.tmpl, and the user's
// file (--nats-config). forNATS puts them together each time they are needed, at the start,
// for Check and for Reload, always from the files as they are then. So what Check accepts
// is what a start or reload uses.
//
// The file is merged as parsed values and written back as text, since NATS reads a
// configuration only from text or a file. An error of NATS about that text is translated to
// the line of the user's file (userfile_explain.go).

// forNATS returns the options of the NATS server: those of lapse, its accounts, and what
// the user's file adds. It reads and returns the file, nil if there is none.
func (o *Options) forNATS(who credentials, room int64) (*server.Options, *userFile, error) {
	host, port, err := splitListen(o.Listen)
	if err != nil {
		return nil, nil, err
	}
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
	if o.Memory {
		so.ServerName, so.JetStreamMaxMemory = "lapse-test", unlimited
	}
	if o.Operator != "" && !nkeys.IsValidPublicUserKey(o.Operator) {
		return nil, nil, &ConfigError{"--operator-nkey: give the public nkey of a user, which begins with U, not its seed"}
	}
	users, err := o.passwords()
	if err != nil {
		return nil, nil, err
	}
	if err := o.checkCertificate(); err != nil {
		return nil, nil, err
	}
	ours := o.accountsConfig(who, users)
	if o.Config == "" {
		if err := so.ProcessConfigString(ours); err != nil {
			return nil, nil, fmt.Errorf("embedded: accounts: %w", err)
		}
		return so, nil, nil
	}
	file, err := o.readFile(room)
	if err != nil {
		return nil, nil, err
	}
	if err := file.checkFlags(); err != nil {
		return nil, nil, err
	}
	merged, err := conf.Parse(ours)
	if err != nil {
		return nil, nil, fmt.Errorf("embedded: accounts: %w", err)
	}
	file.merge(merged)
	var text written
	text.write("", merged, place{})
	if err := so.ProcessConfigString(text.String()); err != nil {
		return nil, nil, text.explain(file, err)
	}
	return so, file, file.check(so)
}

// Check returns an error if a server cannot start with these options, a *ConfigError where
// Config or Operator are wrong, or if others than programs on this machine could do
// something without credentials, unless NoAuth.
func (o Options) Check() error {
	o.EnsureDefaults()
	so, file, err := o.forNATS(newCredentials(), 0)
	if err != nil {
		return err
	}
	switch anonymous := so.NoAuthUser != ""; {
	case Loopback(o.Listen):
	case anonymous && !o.NoAuth:
		return &ConfigError{fmt.Sprintf("--listen %s: others can connect there, without credentials: give --user NAME=FILE with a password, --nats-config FILE with users, an address like 127.0.0.1:4222, or --no-auth to let them", o.Listen)}
	case !anonymous && so.TLSConfig == nil && !o.NoTLS:
		return &ConfigError{fmt.Sprintf("--listen %s: without TLS others can read passwords and documents on their way: give --tls-cert and --tls-key, or --no-tls if nobody else is on that network", o.Listen)}
	}
	if file == nil {
		return nil
	}
	ns, err := server.NewServer(so) // which checks more; it is not started
	if err != nil {
		return file.lineOf(err).errorf("%v", err)
	}
	ns.Shutdown()
	if o.NoAuth {
		return nil
	}
	return file.checkOpen(so)
}

// HasUsers reports whether clients have to log in.
func (o Options) HasUsers() (bool, error) {
	o.EnsureDefaults()
	so, _, err := o.forNATS(newCredentials(), 0)
	return err == nil && so.NoAuthUser == "", err
}

// Reload reads the file of Options.Config again and applies it: certificates, users and
// accounts, and the files of Options.Users, CertFile and KeyFile. Connections of users that
// are left, with the same password, stay. After an error, which says why, nothing has
// changed: all is checked as at a start, before NATS gets any of it.
func (s *Server) Reload() error {
	if err := s.options.Check(); err != nil {
		return err
	}
	// Twice: NATS starts the imports of an account that is new with the second.
	var twice [2]*server.Options
	for i := range twice {
		var err error
		if twice[i], err = s.configured(); err != nil {
			return err
		}
	}
	for _, so := range twice {
		if err := s.nats.ReloadOptions(so); err != nil {
			return &ConfigError{fmt.Sprintf("--nats-config %s: %v: restart to change it", s.options.Config, err)}
		}
	}
	return nil
}
