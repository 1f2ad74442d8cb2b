package main

import (
	"strings"

	"github.com/nats-io/nkeys"
)

// users are the users of nats.conf. Their rights are in nats.conf; here they are only
// names.
var users = []string{
	"processor", "bulk", "gate-log", "operator",
	"service", "gate-clients", "client", "producer", "auditor", "app",
	"system",
}

// makeUsers writes an nkey seed for each user, and returns the environment variables with
// the public keys.
func makeUsers(f *files) (env []string) {
	for _, user := range users {
		pair, err := nkeys.CreateUser()
		if err != nil {
			f.fail(err)
			return nil
		}
		seed, err := pair.Seed()
		f.fail(err)
		public, err := pair.PublicKey()
		f.fail(err)
		f.write("nkeys/"+user+".nk", append(seed, '\n'))
		env = append(env, "NKEY_"+strings.ToUpper(strings.ReplaceAll(user, "-", "_"))+"="+public)
	}
	return env
}
