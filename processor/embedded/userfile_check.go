package embedded

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// Checks of what NATS makes of the merged configuration. A check on the text alone would
// miss defaults, and the ways in which one key changes another: who logs in without
// credentials, for example, follows from no_auth_user, from TLS maps, and from the absence
// of users. So these read server.Options, after NATS has parsed the text and before it
// starts.

// checkFlags returns an error if flags and the file set the same.
func (u *userFile) checkFlags() error {
	switch {
	case len(u.Users) > 0 && u.users > 0:
		return u.errorf("the file has users, and --user %s is given, too: leave one of them out", u.Users[0].Name)
	case u.CertFile != "" && u.keys["tls"] != nil:
		return u.line("tls").errorf("tls: --tls-cert %s is given, too: leave one of them out", u.CertFile)
	}
	return nil
}

// has reports whether an account is one of the file.
func (u *userFile) has(account *server.Account) bool {
	return account != nil && u.of[account.Name] != nil
}

// line returns the line of the first of the keys that the file has.
func (u *userFile) line(keys ...string) place {
	for _, key := range keys {
		if v, ok := u.keys[key]; ok {
			_, at := unwrap(v, u.place)
			return at
		}
	}
	return u.place
}

// lineOf returns the line that an error of the server is about, as far as its text tells.
func (u *userFile) lineOf(err error) place {
	for key := range inOrder(u.keys) {
		if strings.Contains(err.Error(), strings.TrimSuffix(key, "s")) { // leafnode of leafnodes
			return u.line(key)
		}
	}
	return u.place
}

// check checks what the server makes of the merged configuration: leaf nodes and those who
// log in without credentials are in accounts of the file.
func (u *userFile) check(o *server.Options) error {
	for _, check := range []func(*server.Options) error{u.checkUsers, u.checkLeaf, u.checkListeners, u.checkAnonymous} {
		if err := check(o); err != nil {
			return err
		}
	}
	return nil
}

// checkUsers returns an error if a name alone would let somebody in.
func (u *userFile) checkUsers(o *server.Options) error {
	for _, user := range u.withoutPassword {
		if user.name != o.NoAuthUser && user.name != o.Websocket.NoAuthUser && !o.Websocket.TLSMap && !o.LeafNode.TLSMap {
			return user.errorf("user %s: the password is empty: whoever knows the name would be let in", user.name)
		}
	}
	return nil
}

// checkLeaf returns an error if a leaf node could be in an account of lapse or NATS, in
// which it could delete the log. Without users, one that names no account would be in
// lapse's.
func (u *userFile) checkLeaf(o *server.Options) error {
	leaf := o.LeafNode.Account == "" && o.LeafNode.Username == "" && o.LeafNode.Nkey == "" || u.of[o.LeafNode.Account] != nil
	secret := o.LeafNode.Username == "" || o.LeafNode.Password != "" || o.LeafNode.TLSMap
	for _, user := range o.LeafNode.Users {
		leaf = leaf && u.has(user.Account)
		secret = secret && (user.Password != "" || o.LeafNode.TLSMap)
	}
	for _, remote := range o.LeafNode.Remotes {
		leaf = leaf && u.of[remote.LocalAccount] != nil
	}
	at := u.line("leafnodes", "leaf")
	switch {
	case !leaf:
		return at.errorf("leafnodes: name an account of this file: leaf nodes can be in no other")
	case !secret:
		return at.errorf("leafnodes: a password is empty: whoever knows the name would be let in")
	case (o.LeafNode.Port != 0 || o.LeafNode.Host != "") && o.NoAuthUser == userClient:
		return at.errorf("leafnodes: without users, leaf nodes would be in an account of lapse: add an account with a user")
	}
	return nil
}

// checkListeners returns an error about certificates that somebody lacks.
func (u *userFile) checkListeners(o *server.Options) error {
	switch {
	case o.TLSMap:
		return u.line("tls").errorf("tls: verify_and_map: lapse's own connections have no certificate: use verify, and users with passwords or nkeys")
	case o.HTTPSPort != 0 && o.HTTPPort != 0:
		return u.line("https", "https_port").errorf("https: leave out http: there is one of both")
	case o.HTTPSPort != 0 && o.TLSConfig == nil:
		return u.line("https", "https_port").errorf("https: give tls, whose certificate it has")
	}
	return nil
}

// checkAnonymous returns an error if somebody without credentials would be no user of the
// file, and thereby one of lapse's.
func (u *userFile) checkAnonymous(o *server.Options) error {
	own := func(name string) bool {
		return slices.ContainsFunc(o.Users, func(user *server.User) bool { return user.Username == name && u.has(user.Account) }) ||
			slices.ContainsFunc(o.Nkeys, func(user *server.NkeyUser) bool { return user.Nkey == name && u.has(user.Account) })
	}
	const unknown = "unknown user %s: name a user of this file, or omit it"
	switch {
	case o.Websocket.NoAuthUser != "" && !own(o.Websocket.NoAuthUser):
		return u.line("websocket", "ws").errorf("websocket: no_auth_user: "+unknown, o.Websocket.NoAuthUser)
	case u.keys["no_auth_user"] != nil && !own(o.NoAuthUser):
		return u.line("no_auth_user").errorf("no_auth_user: "+unknown, o.NoAuthUser)
	}
	return nil
}

// checkOpen returns an error if others than programs on this machine could connect to what
// the file opens without credentials.
func (u *userFile) checkOpen(o *server.Options) error {
	anonymous, leaf := o.NoAuthUser != "", o.LeafNode
	for _, opened := range []struct {
		keys      []string
		host      string
		port      int
		unguarded bool
	}{
		{[]string{"websocket", "ws"}, o.Websocket.Host, o.Websocket.Port, anonymous || o.Websocket.NoAuthUser != ""},
		{[]string{"leafnodes", "leaf"}, leaf.Host, leaf.Port, anonymous && leaf.Username == "" && leaf.Nkey == "" && len(leaf.Users) == 0},
		{[]string{"http", "http_port", "monitor_port"}, cmp.Or(o.HTTPHost, o.Host), o.HTTPPort, true},
		{[]string{"https", "https_port"}, cmp.Or(o.HTTPHost, o.Host), o.HTTPSPort, true},
	} {
		address := net.JoinHostPort(opened.host, strconv.Itoa(opened.port))
		if opened.port != 0 && opened.unguarded && !Loopback(address) {
			return u.line(opened.keys...).errorf("%s: others can connect to %s without credentials: listen on 127.0.0.1, or give --no-auth to let them", opened.keys[0], address)
		}
	}
	return nil
}
