package embedded

import (
	"crypto/tls"
	"fmt"
	"regexp"
	"slices"
)

// User is a user of the clients' account, who may do what everybody may without users.
// Whoever reads the configuration of a unit sees names and files, not passwords.
type User struct {
	Name string
	File string // one line, the password or a bcrypt hash of it: see ReadPassword
}

// password is a user of the clients' account with what is in its file.
type password struct{ User, Password string }

// password reads the file, which Reload reads again: it has to be a regular one.
func (u User) password() (string, error) {
	if err := CheckFile(u.File); err != nil {
		return "", err
	}
	return ReadPassword(u.File)
}

var userName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// passwords reads the passwords of the users. Its errors are *ConfigErrors. A bcrypt hash
// is passed on as it is: NATS recognizes one by its form.
func (o *Options) passwords() (all []password, err error) {
	for i, u := range o.Users {
		switch {
		case !userName.MatchString(u.Name):
			return nil, &ConfigError{fmt.Sprintf("--user %s=%s: give a name of letters, digits, - and _", u.Name, u.File)}
		case IsOwnUser(u.Name):
			return nil, &ConfigError{fmt.Sprintf("--user %s: lapse has this user: choose another name", u.Name)}
		case slices.ContainsFunc(o.Users[:i], func(before User) bool { return before.Name == u.Name }):
			return nil, &ConfigError{fmt.Sprintf("--user %s is given twice: leave one out", u.Name)}
		}
		text, err := u.password()
		if err != nil {
			return nil, &ConfigError{fmt.Sprintf("--user %s: %v", u.Name, err)}
		}
		all = append(all, password{u.Name, text})
	}
	return all, nil
}

// checkCertificate returns an error if the files of the certificate are none, or do not
// belong together. It reads both, so that a reload with half of a renewed certificate
// changes nothing.
func (o *Options) checkCertificate() error {
	if (o.CertFile == "") != (o.KeyFile == "") {
		return &ConfigError{"--tls-cert and --tls-key go together: give both"}
	}
	if o.CertFile == "" {
		return nil
	}
	for _, err := range []error{CheckFile(o.CertFile), CheckFile(o.KeyFile)} {
		if err != nil {
			return &ConfigError{fmt.Sprintf("--tls-cert, --tls-key: %v", err)}
		}
	}
	if _, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err != nil {
		return &ConfigError{fmt.Sprintf("--tls-cert %s, --tls-key %s: %v: give a certificate and its key in PEM", o.CertFile, o.KeyFile, err)}
	}
	return nil
}
