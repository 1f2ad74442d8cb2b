package embedded

import (
	"crypto/rand"
	_ "embed"
	"slices"
	"strings"
	"text/template"

	"github.com/lapsedb/lapse/processor/gate"
)

// The accounts and users of the server are text in NATS's syntax, accounts.conf.tmpl with
// the permissions of package gate, rather than structs of the server: the text can be read
// beside nats.conf, which has the same users for an external server, and a user's file is
// merged with it (userfile_merge.go).

//go:embed accounts.conf.tmpl
var accountsText string

var accountsTemplate = template.Must(template.New("accounts").Funcs(template.FuncMap{"quoted": quoted}).Parse(accountsText))

// The users of accounts.conf.tmpl.
const (
	userClient      = "client"
	userProcessor   = "processor"
	userService     = "service"
	userGateLog     = "gate_log"
	userGateClients = "gate_clients"
)

// ownUsers are the users of lapse, whose names no other user may have.
var ownUsers = []string{userClient, userProcessor, userService, userGateLog, userGateClients}

// credentials are the passwords of one run, which are never stored: lapse's own connections
// are made in this process, so nobody else needs them, and a restart makes others. The
// client user, the one for connections without credentials, needs a password too, which
// nobody knows.
type credentials struct {
	Processor, GateLog, Client, Service, GateClients string
}

func newCredentials() credentials {
	return credentials{rand.Text(), rand.Text(), rand.Text(), rand.Text(), rand.Text()}
}

// accountsConfig returns the accounts, users and permissions as NATS configuration.
// o.Databases may be gate.AnyDatabase. users are those of the clients' account, with their
// passwords or bcrypt hashes; without any, whoever connects is the client user.
func (o *Options) accountsConfig(who credentials, users []password) string {
	service := gate.Service
	if slices.Contains(o.Databases, gate.AnyDatabase) {
		service |= gate.Tester
	}
	var b strings.Builder
	err := accountsTemplate.Execute(&b, struct {
		*Options
		Who    credentials
		Users  []password
		Rights map[string]string // by user
	}{o, who, users, map[string]string{
		userGateLog:     gate.GateLog.Permissions(o.Databases...),
		userClient:      gate.Anonymous.Permissions(o.Databases...),
		userService:     service.Permissions(o.Databases...),
		userGateClients: gate.GateClients.Permissions(o.Databases...),
		"operator":      gate.Operator.Permissions(o.Databases...),
	}})
	if err != nil {
		panic(err) // the template and its data are both ours
	}
	return b.String()
}
