package embedded

import (
	"crypto/rand"
	_ "embed"
	"strings"
	"text/template"

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

// credentials are the passwords of one run, which are never stored. The client user, the
// one for connections without credentials, needs a password too, which nobody knows.
type credentials struct {
	Processor, GateLog, Client, Service, GateClients string
}

func newCredentials() credentials {
	return credentials{rand.Text(), rand.Text(), rand.Text(), rand.Text(), rand.Text()}
}

// accountsConfig returns the accounts, users and permissions as NATS configuration.
func accountsConfig(dbs []schema.DatabaseName, who credentials) string {
	var b strings.Builder
	err := accountsTemplate.Execute(&b, struct {
		Databases []schema.DatabaseName
		Who       credentials
	}{dbs, who})
	if err != nil {
		panic(err) // the template and its data are both ours
	}
	return b.String()
}
