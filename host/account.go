package host

import (
	"regexp"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
)

// accountName matches names that are the same to NATS in a file, in a subject and, in
// capitals, in a variable.
var accountName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// AccountConfig returns an account for an application with streams of its own, in the
// syntax of NATSConfig: with a user, whose name is that of the account in lower case, and
// all imports that clients of lapse use. It pulls from the durables, by default from one
// with the user's name: an import has to name the stream and consumer, since NATS has no
// wildcard for a part of a token. The error is an *OptionsError.
func AccountConfig(account string, databases []schema.DatabaseName, durables []string) (string, error) {
	user := strings.ToLower(account)
	switch {
	case embedded.IsOwnAccount(account) || embedded.IsOwnUser(user) || user == "include": // a word of NATS's syntax
		return "", optionsErrorf("account %.80q: lapse or NATS uses this name: choose another one", account)
	case !accountName.MatchString(account):
		return "", optionsErrorf("account %.80q: use 1 to 64 of A-Z, a-z, 0-9, _ and -, starting with a letter", account)
	case durables == nil:
		durables = []string{user}
	}
	for i, durable := range durables {
		switch {
		case !accountName.MatchString(durable) || strings.HasPrefix(durable, schema.ServerConsumer):
			return "", optionsErrorf("durable %.80q: use 1 to 64 of A-Z, a-z, 0-9, _ and -, starting with a letter, but not with %s", durable, schema.ServerConsumer)
		case slices.Contains(durables[:i], durable):
			return "", optionsErrorf("durable %s is there twice: give it once", durable)
		}
	}
	return gate.Application{Account: account, User: user, Databases: databases, Durables: durables}.Config(), nil
}
