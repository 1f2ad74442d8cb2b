package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/cosmos"
)

// TestCosmosFlags: a gateway that others can reach needs a key of its own, and flags that do
// not go together are refused.
func TestCosmosFlags(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(key, []byte(strings.Repeat("a2V5", 16)+"\n"), 0o600))
	wrong := filepath.Join(t.TempDir(), "wrong")
	check(t, os.WriteFile(wrong, []byte("secret"), 0o600))
	wellKnown := filepath.Join(t.TempDir(), "known")
	check(t, os.WriteFile(wellKnown, []byte(cosmos.WellKnownKey+"\n"), 0o600))
	for _, c := range []struct {
		f    cosmosFlags
		open bool
		says string // "" for legal flags
	}{
		{f: cosmosFlags{}},
		{f: cosmosFlags{url: "https://localhost:8081", certOut: "x"}},
		{f: cosmosFlags{url: "http://0.0.0.0:0"}, open: true},
		{f: cosmosFlags{url: "http://0.0.0.0:0", keyFile: key}},
		{f: cosmosFlags{url: "http://0.0.0.0:0"}, says: "give --cosmos-key-file"},
		{f: cosmosFlags{url: "https://gateway.example:1"}, says: "give --cosmos-key-file"},
		{f: cosmosFlags{url: "localhost:8081"}, says: "use http://HOST:PORT"},
		{f: cosmosFlags{url: "http://localhost"}, says: "use http://HOST:PORT"},
		{f: cosmosFlags{url: "http://localhost:99999"}, says: "use HOST:PORT"},
		{f: cosmosFlags{url: "http://localhost:1/path"}, says: "use http://HOST:PORT"},
		{f: cosmosFlags{url: "http://localhost:1", certOut: "x"}, says: "http has no certificate"},
		{f: cosmosFlags{url: "https://localhost:1", cert: "x"}, says: "give both"},
		{f: cosmosFlags{url: "https://localhost:1", keyFile: wrong}, says: "openssl rand"},
		{f: cosmosFlags{url: "http://0.0.0.0:0", keyFile: wellKnown}, says: "well-known"},
		{f: cosmosFlags{url: "http://localhost:1#a"}, says: "use http://HOST:PORT"},
		{f: cosmosFlags{url: "http://localhost:1", hosts: []string{"gateway.example:1"}}, says: "without a port"},
		{f: cosmosFlags{hosts: []string{"a"}}, says: "--cosmos-host without --cosmos"},
	} {
		options, err := c.f.options(c.open)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%+v: %v", c.f, err)
		case c.says == "" && (options.URL != c.f.url || (options.Key != "") != (c.f.keyFile != "")):
			t.Errorf("%+v: %+v", c.f, options)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%+v: %v, want it to say %q", c.f, err, c.says)
		}
	}
}

// TestHasLogin: lapse cosmos knows credentials wherever they come from.
func TestHasLogin(t *testing.T) {
	for _, c := range []struct {
		o    nats.Options
		want bool
	}{
		{nats.Options{Servers: []string{"nats://127.0.0.1:4222"}}, false},
		{nats.Options{Servers: []string{"nats://127.0.0.1:4222", "nats://user:password@127.0.0.1:4222"}}, true},
		{nats.Options{Url: "tls://token@127.0.0.1"}, true},
		{nats.Options{User: "user"}, true},
		{nats.Options{Token: "token"}, true},
		{nats.Options{Nkey: "U"}, true},
		{nats.Options{UserJWT: func() (string, error) { return "", nil }}, true},
		{nats.Options{TLSCertCB: func() (tls.Certificate, error) { return tls.Certificate{}, nil }}, true},
	} {
		if got := hasLogin(c.o); got != c.want {
			t.Errorf("%+v has a login: %t", c.o, got)
		}
	}
}
