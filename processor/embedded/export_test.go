package embedded

import (
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// MemoryPath is memoryPath.
var MemoryPath = memoryPath

// AccountsConfig returns the accounts, whose users have their names as passwords.
func AccountsConfig(dbs []schema.DatabaseName) string {
	return (&Options{Databases: dbs}).accountsConfig(credentials{userProcessor, userGateLog, userClient, userService, userGateClients}, nil)
}

// Memory returns the path of the server's directory in memory, "" if there is none.
func (s *Server) Memory() string { return s.memory.path }

// OpenGate opens one more gate, as another process of the same database would.
func (s *Server) OpenGate() (end func(), err error) {
	other := &Server{nats: s.nats, url: s.url, who: s.who, log: s.log}
	return other.Shutdown, other.openGate(&Options{Databases: []schema.DatabaseName{"main"}, Logger: s.log})
}

// ConnectAs connects as a user of lapse, by its name in nats.conf.
func (s *Server) ConnectAs(user string, opts ...nats.Option) (*nats.Conn, error) {
	password := map[string]string{"gate-log": s.who.GateLog, "gate-clients": s.who.GateClients, "service": s.who.Service}[user]
	return s.connect(strings.ReplaceAll(user, "-", "_"), password, "_GATE", opts)
}

// Subscriptions returns the subjects to which an account subscribes, NATS itself included.
func (s *Server) Subscriptions(account string) (subjects []string, err error) {
	all, err := s.nats.Subsz(&server.SubszOptions{Subscriptions: true, Account: account})
	if err != nil {
		return nil, err
	}
	for _, sub := range all.Subs {
		subjects = append(subjects, sub.Subject)
	}
	return subjects, nil
}

// Includes returns the paths that includes finds.
func Includes(text string) (paths []string) {
	for _, i := range includes(text) {
		paths = append(paths, i.path)
	}
	return paths
}
