package embedded

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
)

// accounts are the accounts of a user's file, with what they import from lapse's. read
// fills it; merge and the checks use it.
type accounts struct {
	*Options
	of              map[string]any
	users           int
	imports         []importedSubject // from lapse's
	sources         map[string]place  // the other accounts that are imported from
	withoutPassword []openUser
	file, memory    int64 // bytes that the limits of further accounts may add up to
}

// openUser is a user without a password.
type openUser struct {
	name string
	place
}

// importedSubject is a subject that an account imports from one of lapse's. kind is "service" or
// "stream", as in NATS's syntax.
type importedSubject struct{ by, from, kind, subject string }

// read reads the accounts of a file.
func (a *accounts) read(value any, at place) error {
	named, ok := value.(map[string]any)
	if !ok {
		return at.errorf("accounts: use NAME { … } for each account")
	}
	for name, v := range inOrder(named) {
		value, at := unwrap(v, at)
		if IsOwnAccount(name) {
			return at.errorf("account %s: lapse or NATS has an account of this name: choose another one", name)
		}
		keys, ok := value.(map[string]any)
		if !ok {
			return at.errorf("account %s: use %s { … }", name, name)
		}
		a.of[name] = v
		for key, v := range inOrder(keys) {
			value, at := unwrap(v, at)
			var err error
			switch strings.ToLower(key) {
			case "jetstream":
				err = a.limits(name, value, at)
			case "users":
				err = each(value, at, a.user)
			case "imports":
				err = each(value, at, func(entry map[string]any, at place) error { return a.readImport(name, entry, at) })
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
func each(list any, above place, f func(entry map[string]any, at place) error) error {
	all, _ := list.([]any)
	for _, v := range all {
		value, at := unwrap(v, above)
		entry, _ := value.(map[string]any)
		if err := f(entry, at); err != nil {
			return err
		}
	}
	return nil
}

// limits reads the limits of an account's streams, and takes them from what all accounts
// may have together. NATS starts, or goes on, without JetStream for the accounts whose
// limits it cannot grant: an application would find its streams gone, with one line in the
// log.
func (a *accounts) limits(account string, value any, at place) error {
	keys, _ := value.(map[string]any)
	for key, v := range keys {
		value, at := unwrap(v, at)
		bytes, _ := value.(int64)
		remaining := &a.file
		switch strings.ToLower(key) {
		case "max_memory", "max_mem", "mem", "memory":
			remaining = &a.memory
		case "max_store", "max_file", "max_disk", "store", "disk":
		default:
			continue
		}
		if bytes > *remaining {
			return at.errorf("account %s: %s: at most %d bytes remain; lower it", account, key, *remaining)
		}
		*remaining -= max(bytes, 0)
	}
	return nil
}

// user reads a user of an account. A value that is no string, such as an unquoted number,
// is refused: NATS reads 1234 as a number.
func (a *accounts) user(keys map[string]any, at place) error {
	a.users++
	var name string
	var secret bool
	for key, v := range keys {
		value, at := unwrap(v, at)
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
		a.withoutPassword = append(a.withoutPassword, openUser{name, at})
	}
	return nil
}

// readImport reads an import of an account, and refuses one from an account of lapse that
// would open more than lapse's accounts are made for. Imports from other accounts of the
// file are the user's business; that they exist is checked at the end.
func (a *accounts) readImport(by string, keys map[string]any, at place) error {
	for key, v := range keys {
		kind := strings.ToLower(key)
		if kind != "service" && kind != "stream" {
			continue
		}
		value, at := unwrap(v, at)
		source, _ := value.(map[string]any)
		found := importedSubject{by: by, kind: kind}
		for key, v := range source {
			value, _ := unwrap(v, at)
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

// check returns why lapse does not export the subject. An import may be narrower than what
// lapse exports, not wider. From LAPSE an application gets deliveries to an inbox prefix of
// its own, and pulls from one durable by name: with a wildcard it could read or take away
// what others consume.
func (i importedSubject) check(databases []schema.DatabaseName) error {
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
	case i.kind == "service" && (within(gate.ImportClients) || i.subject == "$SRV.STATS.lapse"): // clients of 0.3.0 ask it
		return nil
	}
	return fmt.Errorf("%s %s of %s: lapse does not export this: import what `lapse config account` prints, or less", i.kind, i.subject, i.from)
}
