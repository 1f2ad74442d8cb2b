package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
)

// ConfigError is an error in Options, one line, which names the flag that mends it, or the
// line of the NATS configuration file.
type ConfigError struct{ message string }

func (e *ConfigError) Error() string { return e.message }

// place is a line of a configuration file; the zero value is none.
type place struct {
	file string
	line int
}

func (p place) errorf(format string, args ...any) error {
	return &ConfigError{fmt.Sprintf("--nats-config %s:%d: %s", p.file, p.line, fmt.Sprintf(format, args...))}
}

// token is a value of a parsed file, with its place.
type token interface {
	Value() any
	Line() int
	SourceFile() string
	IsUsedVariable() bool
}

// open returns a value of a parsed file, and its place, which is above that of a value
// that has none, such as one from the environment.
func open(v any, above place) (any, place) {
	if t, ok := v.(token); ok {
		return t.Value(), place{t.SourceFile(), t.Line()}
	}
	return v, above
}

// inOrder iterates over a map in the order of its lines, so that the first error of a file
// is told.
func inOrder(m map[string]any) iter.Seq2[string, any] {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		_, at := open(m[a], place{})
		_, other := open(m[b], place{})
		return cmp.Or(cmp.Compare(at.line, other.line), strings.Compare(a, b))
	})
	return func(yield func(string, any) bool) {
		for _, key := range keys {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// userFile is the configuration file of a user.
type userFile struct {
	keys  map[string]any // what of it is for the server, without accounts
	place                // the first line
	accounts
}

// accounts are the accounts of a user's file, with what they import from lapse's.
type accounts struct {
	*Options
	of           map[string]any
	users        int
	imports      []imported       // from lapse's
	sources      map[string]place // the other accounts that are imported from
	open         []openUser
	file, memory int64 // bytes that the limits of further accounts may add up to
}

// openUser is a user without a password.
type openUser struct {
	name string
	place
}

// imported is a subject that an account imports from one of lapse's.
type imported struct{ by, from, kind, subject string }

// setElsewhere says for keys of a file how they are set instead.
var setElsewhere = map[string]string{
	"listen": "give --listen HOST:PORT", "port": "give --listen HOST:PORT", "host": "give --listen HOST:PORT", "net": "give --listen HOST:PORT",
	"store_dir": "give --store-dir DIR", "storedir": "give --store-dir DIR", "jetstream": "give --store-dir DIR, and the limits in the accounts",
	"authorization": "put users into an account",
	"cluster":       "use nats-server for a cluster, and --nats-url", "gateway": "use nats-server for a cluster, and --nats-url",
	"operator": "use nats-server for accounts as JWTs, and --nats-url",
}

// readFile reads the configuration file and checks it, as far as its text says what it
// means. The streams of all accounts may take room bytes; 0 if that is unknown.
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
		value, at := open(v, u.place)
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

var parseLine = regexp.MustCompile(`^Parse error on line (\d+): '(.*)'$`)

// parseError says where a file cannot be parsed.
func parseError(file string, err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	if parts := parseLine.FindStringSubmatch(text); parts != nil {
		return fmt.Sprintf("--nats-config %s:%s: %s", file, parts[1], parts[2])
	}
	return fmt.Sprintf("--nats-config %s: %s", file, strings.TrimPrefix(text, "open "+file+": "))
}

// read reads the accounts of a file.
func (a *accounts) read(value any, at place) error {
	named, ok := value.(map[string]any)
	if !ok {
		return at.errorf("accounts: use NAME { … } for each account")
	}
	for name, v := range inOrder(named) {
		value, at := open(v, at)
		if IsOwnAccount(name) {
			return at.errorf("account %s: lapse or NATS has an account of this name: choose another one", name)
		}
		keys, ok := value.(map[string]any)
		if !ok {
			return at.errorf("account %s: use %s { … }", name, name)
		}
		a.of[name] = v
		for key, v := range inOrder(keys) {
			value, at := open(v, at)
			var err error
			switch strings.ToLower(key) {
			case "jetstream":
				err = a.limits(name, value, at)
			case "users":
				err = each(value, at, a.user)
			case "imports":
				err = each(value, at, func(one map[string]any, at place) error { return a.imported(name, one, at) })
			}
			if err != nil {
				return err
			}
		}
	}
	for name, at := range a.sources {
		if _, ok := a.of[name]; !ok {
			return at.errorf("account %s: there is none to import from", name)
		}
	}
	return nil
}

// each calls f for each map of a list, until it returns an error.
func each(list any, above place, f func(one map[string]any, at place) error) error {
	all, _ := list.([]any)
	for _, v := range all {
		value, at := open(v, above)
		one, _ := value.(map[string]any)
		if err := f(one, at); err != nil {
			return err
		}
	}
	return nil
}

// limits reads the limits of an account's streams. NATS starts, or goes on, without
// JetStream for the accounts whose limits it cannot grant.
func (a *accounts) limits(account string, value any, at place) error {
	keys, _ := value.(map[string]any)
	for key, v := range keys {
		value, at := open(v, at)
		bytes, _ := value.(int64)
		left := &a.file
		switch strings.ToLower(key) {
		case "max_memory", "max_mem", "mem", "memory":
			left = &a.memory
		case "max_store", "max_file", "max_disk", "store", "disk":
		default:
			continue
		}
		if bytes > *left {
			return at.errorf("account %s: %s: %d bytes are left for it: lower it", account, key, *left)
		}
		*left -= max(bytes, 0)
	}
	return nil
}

// user reads a user of an account.
func (a *accounts) user(keys map[string]any, at place) error {
	a.users++
	var name string
	var secret bool
	for key, v := range keys {
		value, at := open(v, at)
		text, ok := value.(string)
		switch strings.ToLower(key) {
		case "user", "username", "nkey":
			if IsOwnUser(text) || ok && text == a.Operator {
				return at.errorf("user %s: lapse has this user: choose another one", text)
			}
			name = text
			secret = secret || strings.EqualFold(key, "nkey")
		case "pass", "password":
			secret = secret || text != ""
		default:
			continue
		}
		if !ok {
			return at.errorf("%s: put it in quotes, also within a variable", key)
		}
	}
	if !secret {
		a.open = append(a.open, openUser{name, at})
	}
	return nil
}

// imported reads an import of an account, and refuses one from an account of lapse that
// would open more than lapse's accounts are made for.
func (a *accounts) imported(by string, keys map[string]any, at place) error {
	for key, v := range keys {
		kind := strings.ToLower(key)
		if kind != "service" && kind != "stream" {
			continue
		}
		value, at := open(v, at)
		source, _ := value.(map[string]any)
		found := imported{by: by, kind: kind}
		for key, v := range source {
			value, _ := open(v, at)
			switch strings.ToLower(key) {
			case "account":
				found.from = fmt.Sprint(value)
			case "subject":
				found.subject = fmt.Sprint(value)
			}
		}
		if found.from != "LAPSE" && found.from != "CLIENTS" {
			a.sources[found.from] = at
			continue
		}
		if err := found.check(a.Databases); err != nil {
			return at.errorf("account %s: %v", by, err)
		}
		a.imports = append(a.imports, found)
	}
	return nil
}

// check returns why lapse does not export the subject.
func (i imported) check(databases []schema.DatabaseName) error {
	if !server.IsValidSubject(i.subject) {
		return fmt.Errorf("%q is no subject", i.subject)
	}
	within := func(role gate.Role) bool {
		return slices.ContainsFunc(role.Subjects(databases...), func(s string) bool { return server.SubjectMatchesFilter(i.subject, s) })
	}
	durable := i.subject[strings.LastIndex(i.subject, ".")+1:]
	switch {
	case i.from == "LAPSE" && i.kind == "stream":
		tokens := strings.Split(i.subject, ".")
		if len(tokens) > 2 && tokens[0] == "_INBOX" && tokens[1] != "*" {
			return nil
		}
		return fmt.Errorf("stream %s of LAPSE: import an inbox prefix of your own, as _INBOX.app.>", i.subject)
	case i.from == "LAPSE":
		if within(gate.ImportStreams) && durable != "*" && !strings.HasPrefix(durable, schema.ServerConsumer) {
			return nil
		}
		return fmt.Errorf("service %s of LAPSE: import $JS.API.CONSUMER.MSG.NEXT.<log>.<durable> of one durable, all else from CLIENTS", i.subject)
	case i.kind == "service" && within(gate.ImportClients):
		return nil
	}
	return fmt.Errorf("%s %s of %s: lapse does not export this: import what `lapse config account` prints, or less", i.kind, i.subject, i.from)
}

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

// merge adds the file to lapse's configuration, and to lapse's accounts the exports for
// what its accounts import.
func (u *userFile) merge(ours map[string]any) {
	if u.users > 0 {
		delete(ours, "no_auth_user") // whoever connects has to log in
	}
	for key, v := range u.keys {
		ours[key] = v
	}
	all := ours["accounts"].(map[string]any)
	for name, v := range u.of {
		all[name] = v
	}
	exports := map[imported]map[string]any{}
	for _, i := range u.imports {
		by := i.by
		i.by = ""
		export := exports[i]
		if export == nil {
			export = map[string]any{i.kind: i.subject, "accounts": []any{}}
			if i.from == "LAPSE" && i.kind == "service" || strings.HasPrefix(i.subject, "$SRV.") {
				export["response_type"], export["threshold"] = "stream", "2m" // of silence; clients ask for heartbeats
			}
			exports[i] = export
			from := all[i.from].(map[string]any)
			list, _ := from["exports"].([]any)
			from["exports"] = append(list, export)
		}
		if importers := export["accounts"].([]any); !slices.Contains(importers, any(by)) {
			export["accounts"] = append(importers, by)
		}
	}
}

// has reports whether an account is one of the file.
func (u *userFile) has(account *server.Account) bool {
	return account != nil && u.of[account.Name] != nil
}

// line returns the line of the first of the keys that the file has.
func (u *userFile) line(keys ...string) place {
	for _, key := range keys {
		if v, ok := u.keys[key]; ok {
			_, at := open(v, u.place)
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
// log in without credentials are in accounts of the file. A leaf node in an account of lapse
// or NATS could delete the log.
func (u *userFile) check(o *server.Options) error {
	leaf := o.LeafNode.Account == "" && o.LeafNode.Username == "" && o.LeafNode.Nkey == "" || u.of[o.LeafNode.Account] != nil
	secret := o.LeafNode.Username == "" || o.LeafNode.Password != "" || o.LeafNode.TLSMap
	for _, user := range o.LeafNode.Users {
		leaf = leaf && u.has(user.Account)
		secret = secret && (user.Password != "" || o.LeafNode.TLSMap)
	}
	for _, remote := range o.LeafNode.Remotes {
		leaf = leaf && u.of[remote.LocalAccount] != nil
	}
	own := func(name string) bool {
		return slices.ContainsFunc(o.Users, func(user *server.User) bool { return user.Username == name && u.has(user.Account) }) ||
			slices.ContainsFunc(o.Nkeys, func(user *server.NkeyUser) bool { return user.Nkey == name && u.has(user.Account) })
	}
	for _, user := range u.open {
		if user.name != o.NoAuthUser && user.name != o.Websocket.NoAuthUser && !o.Websocket.TLSMap && !o.LeafNode.TLSMap {
			return user.errorf("user %s: the password is empty: whoever knows the name would be let in", user.name)
		}
	}
	const another = "%s is no user of this file: name one, or leave it out"
	switch {
	case !leaf:
		return u.line("leafnodes", "leaf").errorf("leafnodes: name an account of this file: leaf nodes can be in no other")
	case !secret:
		return u.line("leafnodes", "leaf").errorf("leafnodes: a password is empty: whoever knows the name would be let in")
	case (o.LeafNode.Port != 0 || o.LeafNode.Host != "") && o.NoAuthUser == userClient:
		return u.line("leafnodes", "leaf").errorf("leafnodes: without users, leaf nodes would be in an account of lapse: add an account with a user")
	case o.TLSMap:
		return u.line("tls").errorf("tls: verify_and_map: lapse's own connections have no certificate: use verify, and users with passwords or nkeys")
	case o.HTTPSPort != 0 && o.HTTPPort != 0:
		return u.line("https", "https_port").errorf("https: leave out http: there is one of both")
	case o.HTTPSPort != 0 && o.TLSConfig == nil:
		return u.line("https", "https_port").errorf("https: give tls, whose certificate it has")
	case o.Websocket.NoAuthUser != "" && !own(o.Websocket.NoAuthUser):
		return u.line("websocket", "ws").errorf("websocket: no_auth_user: "+another, o.Websocket.NoAuthUser)
	case u.keys["no_auth_user"] != nil && !own(o.NoAuthUser):
		return u.line("no_auth_user").errorf("no_auth_user: "+another, o.NoAuthUser)
	}
	return nil
}

// checkOpen returns an error if others than programs on this machine could connect to what
// the file opens without credentials.
func (u *userFile) checkOpen(o *server.Options) error {
	anonymous, leaf := o.NoAuthUser != "", o.LeafNode
	for _, opened := range []struct {
		keys []string
		host string
		port int
		open bool
	}{
		{[]string{"websocket", "ws"}, o.Websocket.Host, o.Websocket.Port, anonymous || o.Websocket.NoAuthUser != ""},
		{[]string{"leafnodes", "leaf"}, leaf.Host, leaf.Port, anonymous && leaf.Username == "" && leaf.Nkey == "" && len(leaf.Users) == 0},
		{[]string{"http", "http_port", "monitor_port"}, cmp.Or(o.HTTPHost, o.Host), o.HTTPPort, true},
		{[]string{"https", "https_port"}, cmp.Or(o.HTTPHost, o.Host), o.HTTPSPort, true},
	} {
		address := net.JoinHostPort(opened.host, strconv.Itoa(opened.port))
		if opened.port != 0 && opened.open && !Loopback(address) {
			return u.line(opened.keys...).errorf("%s: others can connect to %s without credentials: listen on 127.0.0.1, or give --no-auth to let them", opened.keys[0], address)
		}
	}
	return nil
}

// written is a configuration as text, with the place of each line in the user's files.
type written struct {
	strings.Builder
	places []place
}

func (w *written) line(text string, at place) {
	w.WriteString(text + "\n")
	w.places = append(w.places, at)
}

// write writes a value after what begins its line.
func (w *written) write(begin string, v any, above place) {
	v, at := open(v, above)
	switch v := v.(type) {
	case map[string]any:
		w.line(begin+"{", at)
		for key, one := range inOrder(v) {
			w.write(quoted(key)+": ", one, at)
		}
		w.line("}", at)
	case []any:
		w.line(begin+"[", at)
		for _, one := range v {
			w.write("", one, at)
		}
		w.line("]", at)
	case string:
		w.line(begin+quoted(v), at)
	case float64:
		w.line(begin+strconv.FormatFloat(v, 'f', -1, 64), at)
	default: // int64 and bool
		w.line(begin+fmt.Sprint(v), at)
	}
}

// quoted writes a string as NATS reads it.
func quoted(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

var configLine = regexp.MustCompile(`^:(\d+):\d+: (.*)$`)

// explain returns NATS's first error about the configuration, with its place.
func (w *written) explain(u *userFile, err error) error {
	all := []error{err}
	if several, ok := errors.AsType[interface {
		error
		Errors() []error
	}](err); ok && len(several.Errors()) > 0 {
		all = several.Errors()
	}
	var first place
	var text string
	for _, one := range all {
		at, what := u.place, strings.ReplaceAll(one.Error(), "\n", " ")
		if parts := configLine.FindStringSubmatch(what); parts != nil {
			if n, _ := strconv.Atoi(parts[1]); n > 0 && n <= len(w.places) && w.places[n-1] != (place{}) {
				at = w.places[n-1]
			}
			what = parts[2]
		}
		if text == "" || at.line < first.line {
			first, text = at, what
		}
	}
	return first.errorf("%s", text)
}
