package embedded

import (
	"cmp"
	"math"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
)

// The file of --nats-config goes through five steps, a file of code each. It is read, and
// what lapse does not leave to users is refused (here; userfile_accounts.go for accounts).
// It is merged with lapse's configuration (userfile_merge.go), and written as text for NATS
// (userfile_write.go). What NATS makes of the whole is checked (userfile_check.go). Errors
// are explained by the lines of the user's file (userfile_explain.go).
//
// What is refused would break a promise: another listener would have no limits, an account
// with lapse's name could append to the log, a leaf node in it could delete it. The list of
// keys that are accepted is closed, so a key of a later NATS is refused until somebody has
// looked at it.

// userFile is the configuration file of a user.
type userFile struct {
	keys  map[string]any // what of it is for the server, without accounts
	place                // the first line
	accounts
}

// setElsewhere maps keys that the file must not set to the flag that sets them, as advice
// in the error.
var setElsewhere = map[string]string{
	"listen": "give --listen HOST:PORT", "port": "give --listen HOST:PORT", "host": "give --listen HOST:PORT", "net": "give --listen HOST:PORT",
	"store_dir": "give --store-dir DIR", "storedir": "give --store-dir DIR", "jetstream": "give --store-dir DIR, and the limits in the accounts",
	"authorization": "put users into an account",
	"cluster":       "use nats-server for a cluster, and --nats-url", "gateway": "use nats-server for a cluster, and --nats-url",
	"operator": "use nats-server for accounts as JWTs, and --nats-url",
}

// readFile reads the configuration file and checks what can be checked without starting
// NATS. The streams of all accounts may take room bytes; 0 if that is unknown. A key that
// serves as a variable, as in NATS's syntax, is no setting and passes.
func (o *Options) readFile(room int64) (*userFile, error) {
	if err := CheckFile(o.Config); err != nil {
		return nil, &ConfigError{"--nats-config " + err.Error()}
	}
	if err := checkIncludes(o.Config, nil, new(int)); err != nil {
		return nil, err
	}
	parsed, err := conf.ParseFileWithChecks(o.Config)
	if err != nil {
		return nil, &ConfigError{parseError(o.Config, err)}
	}
	if err := checkFiles(parsed, place{o.Config, 1}); err != nil {
		return nil, err
	}
	u := &userFile{keys: map[string]any{}, place: place{o.Config, 1}, accounts: accounts{
		Options: o, of: map[string]any{}, sources: map[string]place{}, file: cmp.Or(room, math.MaxInt64), memory: maxMemory,
	}}
	for name, v := range inOrder(parsed) {
		key := strings.ToLower(name)
		value, at := unwrap(v, u.place)
		switch key {
		case "accounts":
			err = u.accounts.read(value, at)
		case "tls", "websocket", "ws", "leafnodes", "leaf", "http", "https", "http_port", "monitor_port", "https_port", "http_base_path", "no_auth_user":
			u.keys[key] = v
		default:
			instead := setElsewhere[key]
			if t, ok := v.(token); instead == "" && ok && t.IsUsedVariable() {
				continue
			}
			if instead == "" {
				instead = "leave it out: lapse sets it, or cannot have it; a file has accounts, tls, leafnodes, websocket, http, https and no_auth_user"
			}
			err = at.errorf("%s: %s", name, instead)
		}
		if err != nil {
			return nil, err
		}
	}
	return u, nil
}
