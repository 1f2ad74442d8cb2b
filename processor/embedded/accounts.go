package embedded

import (
	"crypto/rand"
	_ "embed"
	"slices"
	"strings"
	"text/template"

	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
)

//go:embed accounts.conf.tmpl
var accountsText string

var accountsTemplate = template.Must(template.New("accounts").Parse(accountsText))

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

// credentials are the passwords of one run, which are never stored. The client user, the
// one for connections without credentials, needs a password too, which nobody knows.
type credentials struct {
	Processor, GateLog, Client, Service, GateClients string
}

func newCredentials() credentials {
	return credentials{rand.Text(), rand.Text(), rand.Text(), rand.Text(), rand.Text()}
}

// accountsConfig returns the accounts, users and permissions as NATS configuration.
// operator is the public nkey of the user operator; "" for none. dbs may be
// gate.AnyDatabase.
func accountsConfig(dbs []schema.DatabaseName, who credentials, operator string) string {
	service := gate.Service
	if slices.Contains(dbs, gate.AnyDatabase) {
		service |= gate.Tester
	}
	var b strings.Builder
	err := accountsTemplate.Execute(&b, struct {
		Databases []schema.DatabaseName
		Who       credentials
		Operator  string
		Rights    map[string]string // by user
	}{dbs, who, operator, map[string]string{
		userGateLog:     gate.GateLog.Permissions(dbs...),
		userClient:      gate.Anonymous.Permissions(dbs...),
		userService:     service.Permissions(dbs...),
		userGateClients: gate.GateClients.Permissions(dbs...),
		"operator":      gate.Operator.Permissions(dbs...),
	}})
	if err != nil {
		panic(err) // the template and its data are both ours
	}
	return b.String()
}
