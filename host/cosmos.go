package host

import (
	"context"
	"log/slog"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/cosmos"
	"github.com/lapsedb/lapse/schema"
)

// Cosmos says where the protocol of Azure Cosmos DB is served, and to whom.
type Cosmos struct {
	cosmos.Address // its URL is "" for no gateway
	// In base64, not its file.
	Key string `flag:"let programs sign with the account key in [FILE] instead of the emulators' well-known one; needed on addresses other than loopback, and beside users"`
}

// CosmosServer is a gateway that listens, unless it has no address. Listen, Serve, its
// stop, and Close are called in this order, by one goroutine.
type CosmosServer struct {
	Cosmos
	server      *cosmos.Server // nil without an address
	stopReloads func()
}

// Listen listens, so that a wrong address is an error before anything starts. Its error says
// what to do. With reload, SIGHUP reads the files of the certificate again from now on, until
// Close.
func (c Cosmos) Listen(reload bool, logger *slog.Logger) (*CosmosServer, error) {
	s := &CosmosServer{Cosmos: c, stopReloads: func() {}}
	if c.URL == "" {
		return s, nil
	}
	// A place for one value, taken and put back: a SIGHUP waits here until Listen knows the
	// server, and finds it there each time.
	opened := make(chan *cosmos.Server, 1)
	if reload && c.CertFile != "" {
		s.stopReloads = onReload(func() { // a SIGHUP before the gateway listens would end the process
			server := <-opened
			opened <- server
			c.reload(server, logger)
		})
	}
	var err error
	s.server, err = c.Address.Listen()
	opened <- s.server
	if err != nil {
		s.stopReloads()
	}
	return s, err
}

// reload reads the files of the certificate again, unless the gateway could not listen.
func (c Cosmos) reload(server *cosmos.Server, logger *slog.Logger) {
	if server == nil {
		return
	}
	if err := server.Reload(); err != nil {
		logger.Error("not reloaded, the certificate is the one before: " + err.Error())
		return
	}
	logger.Info("reloaded", "cosmos_cert", c.CertFile)
}

// Close ends a gateway whose Serve has ended, or that is not served.
func (s *CosmosServer) Close() {
	s.stopReloads()
	if s.server != nil {
		s.server.Close()
	}
}

// Serving returns the URL at which the gateway listens, without a slash at its end; "" if it
// does not.
func (s *CosmosServer) Serving() string {
	if s.server == nil {
		return ""
	}
	return s.server.URL
}

// Serve serves the databases that the options reach, until stop is called. Their Hosts and Key
// are those of s.
func (s *CosmosServer) Serve(o cosmos.Options, logger *slog.Logger) (stop func(), err error) {
	o.Hosts, o.Key = append([]string{s.server.Host}, s.Hosts...), s.Key
	gateway, err := cosmos.New(o)
	if err != nil {
		return nil, err
	}
	return s.server.Serve(gateway, logger), nil
}

// serveCosmos serves the databases of the embedded server, until end is called; none if no
// gateway listens. names returns those that are there. Each database has a connection of
// its own, which the gateway opens when it is first asked for it.
func (r *run) serveCosmos(names func() []schema.DatabaseName) (end func(), err error) {
	if r.cosmos.server == nil {
		return func() {}, nil
	}
	return r.cosmos.Serve(cosmos.Options{
		Test: r.Test != nil,
		Connect: func(database string) (*client.Client, func(), error) {
			nc, err := r.target.client()
			if err != nil {
				return nil, nil, err
			}
			c, err := client.New(nc, client.WithDatabase(database))
			if err != nil {
				nc.Close()
				return nil, nil, err
			}
			return c, nc.Close, nil
		},
		Databases: func(context.Context) (all []string, _ error) {
			for _, name := range names() {
				all = append(all, string(name))
			}
			return all, nil
		},
	}, r.Processor.Logger)
}
