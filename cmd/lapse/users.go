package main

import (
	"errors"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
)

// userFlag is a repeatable flag with a user of the embedded NATS server. The flag has the
// file of the password, never the password: arguments are visible to every user of the
// machine.
type userFlag struct{ to *[]host.User }

func (f *userFlag) Set(text string) error {
	name, file, named := strings.Cut(text, "=")
	if !named || name == "" || file == "" {
		return errors.New("use NAME=FILE, where FILE has the password")
	}
	*f.to = append(*f.to, host.User{Name: name, File: file})
	return nil
}

func (f *userFlag) String() string {
	given := make([]string, 0, len(*f.to))
	for _, u := range *f.to {
		given = append(given, u.Name+"="+u.File)
	}
	return strings.Join(given, ",")
}

func (*userFlag) Type() string { return "user" }

// readPassword reads the file of --password-file, one line. Its rules on modes are those of
// --user.
func readPassword(file string) (string, error) {
	password, err := host.ReadPassword(file)
	if err != nil {
		return "", usageErrorf("--password-file: %v", err)
	}
	return password, nil
}

// withPassword is an option that adds a password to the name of the user in the addresses,
// or else to the one that a context has. It has to come after the options that set
// addresses. nats.go sends one login to all servers, so the name in the last address
// counts.
func withPassword(password string) nats.Option {
	return func(o *nats.Options) error {
		for i, address := range o.Servers {
			if !strings.Contains(address, "://") {
				address = "nats://" + address // as nats.go reads it
			}
			u, err := url.Parse(address)
			if err != nil || u.User == nil {
				continue // nats.go says what is wrong with the address
			}
			if _, has := u.User.Password(); has {
				return client.ErrBadRequest.With("--password-file, and a password in the address: leave one of them out")
			}
			o.User, u.User = u.User.Username(), nil
			o.Servers[i] = u.String()
		}
		if o.User == "" {
			return client.ErrBadRequest.With("--password-file has no user: give --server nats://USER@HOST:PORT, or a context with one")
		}
		o.Password, o.Token = password, ""
		return nil
	}
}
