package gate

import (
	"fmt"
	"strings"

	"github.com/lapsedb/lapse/schema"
)

// Application is an account for an application with streams of its own, beside lapse's.
type Application struct {
	Account   string
	User      string // also the token of its inboxes after _INBOX.
	Databases []schema.DatabaseName
	Durables  []string // the consumers of each log from which it pulls
}

// apiPrefix is where an application imports the JetStream API of the log.
const apiPrefix = "LAPSE.API."

// Config returns the account in the syntax of a configuration file of NATS, with a comment
// for what a reader may want to change. It is made from the same permissions as the
// embedded server's own accounts, so it imports nothing that these do not export.
func (a Application) Config() string {
	return fmt.Sprintf(`# For lapse serve --nats-config, whose file has: accounts { include FILE }
%[1]s {
  # The disk is that of the log, too: without limits, %[1]s could fill it.
  jetstream: { max_file: 1GB, max_mem: 64MB }
  users: [{ user: %[2]s, password: $%[3]s_PASSWORD }]
  imports: [
    # Readers of the log: --js-api-prefix LAPSE.API --inbox-prefix _INBOX.%[2]s
    %[4]s
  ]
}
`, a.Account, a.User, strings.ToUpper(strings.ReplaceAll(a.User, "-", "_")), strings.Join(a.imports(), "\n    "))
}

// imports returns all imports of the account but for direct gets, which the log does not
// have: a line for each, below comments.
func (a Application) imports() (lines []string) {
	comment := ""
	for _, p := range allPublish() {
		subjects := a.fromClients(p)
		if len(subjects) > 0 && p.why != "" && p.why != comment {
			comment = p.why
			lines = append(lines, "# "+comment)
		}
		for _, subject := range subjects {
			lines = append(lines, appImport("CLIENTS", subject))
		}
	}
	lines = append(lines, "# A line for each durable. From LAPSE itself: through the gate, no message would arrive.")
	for _, next := range ImportStreams.Subjects(a.Databases...) {
		for _, durable := range a.Durables {
			lines = append(lines, appImport("LAPSE", strings.TrimSuffix(next, "*")+durable))
		}
	}
	return append(lines, fmt.Sprintf("{ stream: { account: LAPSE, subject: %q } }", schema.InboxPrefix+a.User+".>"))
}

// fromClients returns the subjects of a permission that the account imports from CLIENTS.
func (a Application) fromClients(p permission) (subjects []string) {
	for _, subject := range of([]permission{p}, ImportClients, a.Databases) {
		switch {
		case strings.HasPrefix(subject, "$JS.API.DIRECT."):
		case strings.HasPrefix(subject, "$JS.ACK."): // of all, it could acknowledge what is another's
			for _, durable := range a.Durables {
				subjects = append(subjects, strings.TrimSuffix(subject, ">")+durable+".>")
			}
		default:
			subjects = append(subjects, subject)
		}
	}
	return subjects
}

// appImport returns the import of a service.
func appImport(from, subject string) string {
	to := ""
	if request, ok := strings.CutPrefix(subject, "$JS.API."); ok {
		to = fmt.Sprintf(", to: %q", apiPrefix+request)
	}
	return fmt.Sprintf("{ service: { account: %s, subject: %q }%s }", from, subject, to)
}
