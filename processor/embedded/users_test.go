package embedded_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// users is a directory with a file for the password of each user.
type users struct {
	*testing.T
	dir string
}

// write writes a password, and returns its file.
func (u users) write(name, password string, mode os.FileMode) string {
	u.Helper()
	file := filepath.Join(u.dir, name)
	check(u, os.WriteFile(file, []byte(password), 0o600))
	check(u, os.Chmod(file, mode))
	return file
}

// TestUsersRefused: what is wrong with users, their files, and certificates is said in one
// line, and nothing starts.
func TestUsersRefused(t *testing.T) {
	dir := t.TempDir()
	u := users{t, dir}
	good := u.write("good", "secret\n", 0o640)
	cert, key := writeCertificate(t, dir)
	other := filepath.Join(dir, "other")
	check(t, os.Mkdir(other, 0o700))
	_, otherKey := writeCertificate(t, other)
	u.write("users.conf", `accounts { APP { users: [{ user: x, password: y }] } }`, 0o600)
	u.write("tls.conf", `tls { cert_file: "`+cert+`", key_file: "`+key+`" }`, 0o600)
	app := []embedded.User{{Name: "app", File: good}}
	for want, o := range map[string]embedded.Options{
		"--user app: FILE: no such file or directory":                   {Users: []embedded.User{{Name: "app", File: filepath.Join(dir, "none")}}},
		"--user app: FILE is empty":                                     {Users: []embedded.User{{Name: "app", File: u.write("empty", " \n", 0o600)}}},
		"--user app: FILE has more than one line":                       {Users: []embedded.User{{Name: "app", File: u.write("two", "a\nb\n", 0o600)}}},
		"--user app: others may read or write FILE (0644)":              {Users: []embedded.User{{Name: "app", File: u.write("read", "a", 0o644)}}},
		"--user app: others may read or write FILE (0660)":              {Users: []embedded.User{{Name: "app", File: u.write("group", "a", 0o660)}}},
		"--user app: FILE is a directory, pipe or device":               {Users: []embedded.User{{Name: "app", File: other}}},
		"--user app is given twice":                                     {Users: append(app, app...)},
		"--user client: lapse has this user":                            {Users: []embedded.User{{Name: "client", File: good}}},
		"--user gate_log: lapse has this user":                          {Users: []embedded.User{{Name: "gate_log", File: good}}},
		"--user a.b=" + good + ": give a name of letters":               {Users: []embedded.User{{Name: "a.b", File: good}}},
		"--user a b=" + good + ": give a name of letters":               {Users: []embedded.User{{Name: "a b", File: good}}},
		"the file has users, and --user app is given, too":              {Users: app, Config: filepath.Join(dir, "users.conf")},
		"tls: --tls-cert " + cert + " is given, too":                    {CertFile: cert, KeyFile: key, Config: filepath.Join(dir, "tls.conf")},
		"--tls-cert and --tls-key go together":                          {CertFile: cert},
		"tls: private key does not match public key":                    {CertFile: cert, KeyFile: otherKey},
		"failed to find any PEM data":                                   {CertFile: good, KeyFile: good},
		"--listen 0.0.0.0:-1: without TLS others can read":              {Users: app, Listen: "0.0.0.0:-1"},
		"--listen 0.0.0.0:-1: without TLS":                              {Config: filepath.Join(dir, "users.conf"), Listen: "0.0.0.0:-1", NoAuth: true},
		"--listen 0.0.0.0:-1: others can connect there, without creden": {CertFile: cert, KeyFile: key, Listen: "0.0.0.0:-1"},
	} {
		o.StoreDir, o.Databases = filepath.Join(dir, "data"), []schema.DatabaseName{db}
		err := o.Check()
		if err == nil {
			t.Errorf("not refused: %s", want)
			continue
		}
		line := err.Error()
		if len(o.Users) > 0 {
			want = strings.ReplaceAll(want, "FILE", o.Users[0].File)
		}
		if !strings.Contains(line, want) || strings.Contains(line, "\n") || strings.Contains(line, "secret") {
			t.Errorf("%s\nwant %s", line, want)
		}
	}
	for _, o := range []embedded.Options{
		{Users: app, Listen: "0.0.0.0:-1", NoTLS: true},
		{Users: app, Listen: "0.0.0.0:-1", CertFile: cert, KeyFile: key},
		{Users: app, Config: filepath.Join(dir, "tls.conf"), Listen: "0.0.0.0:-1"},
	} {
		o.StoreDir, o.Databases = filepath.Join(dir, "data"), []schema.DatabaseName{db}
		check(t, o.Check())
	}
}

// TestCredentialsDirectory: systemd keeps its credentials from others, whatever their modes.
func TestCredentialsDirectory(t *testing.T) {
	u := users{t, t.TempDir()}
	t.Setenv("CREDENTIALS_DIRECTORY", u.dir)
	must(t)(embedded.ReadPassword(u.write("app", "a", 0o444)))
	if _, err := embedded.ReadPassword(users{t, t.TempDir()}.write("app", "a", 0o444)); err == nil {
		t.Error("accepted elsewhere")
	}
}

// TestUsers: users log in with their password, also by WebSocket, and may do what clients may
// without users. Reload ends the connections of a user that has another password, and no
// other; what it cannot read changes nothing.
func TestUsers(t *testing.T) {
	u := users{t, t.TempDir()}
	webSocket := harness.FreeAddr(t)
	const secret, hash = `$ecret "with\ quotes`, "$2a$04$t8h2/0pb7/rAgjdfWIj1D.wFT90srEH3aN/oAG19dkLfFc31.CWX6" // of "password"
	s, _, js := startLog(t, embedded.Options{
		StoreDir: filepath.Join(u.dir, "data"), Listen: "127.0.0.1:-1", Databases: []schema.DatabaseName{db},
		Config: u.write("ws.conf", `websocket { listen: "`+webSocket+`", no_tls: true }`, 0o600),
		Users:  []embedded.User{{Name: "app", File: u.write("app", secret+"\n", 0o600)}, {Name: "hashed", File: u.write("hashed", hash, 0o440)}},
	})
	must(t)(js.Publish(ctx(t), appendTo("c.DocumentCreated"), nil))
	dial := func(url, user, password string) (*nats.Conn, error) {
		return nats.Connect(url, quiet, nats.Timeout(patience), nats.UserInfo(user, password), nats.NoReconnect())
	}
	for user, password := range map[string]string{"": "", "app": "x", "hashed": hash, "client": "", "nobody": secret} {
		if nc, err := dial(s.URL(), user, password); err == nil {
			nc.Close()
			t.Errorf("%s is let in with %s", user, password)
		}
	}
	// reads lets a durable consumer of its own read the log, as clients do without users.
	reads := func(nc *nats.Conn) {
		t.Helper()
		js := jetStream(t, nc)
		c, err := js.CreateOrUpdateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: rand.Text(), AckPolicy: jetstream.AckExplicitPolicy})
		check(t, err)
		m, err := c.Next(jetstream.FetchContext(ctx(t)))
		check(t, err)
		check(t, m.DoubleAck(ctx(t)))
	}
	var connections []*nats.Conn
	for _, login := range [][3]string{{s.URL(), "app", secret}, {s.URL(), "hashed", "password"}, {"ws://" + webSocket, "hashed", "password"}} {
		nc, err := dial(login[0], login[1], login[2])
		if err != nil {
			t.Fatal(login, err)
		}
		defer nc.Close()
		reads(nc)
		connections = append(connections, nc)
	}

	u.write("app", "a\nb\n", 0o600)
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), "more than one line") {
		t.Error(err)
	}
	u.write("app", "another", 0o600)
	reads(connections[0])
	check(t, s.Reload())
	eventually(t, "the connection with the old password ends", connections[0].IsClosed)
	for _, nc := range connections[1:] {
		reads(nc)
	}
	again := connected(t)(dial(s.URL(), "app", "another"))
	reads(again)
}
