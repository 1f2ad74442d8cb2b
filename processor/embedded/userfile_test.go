package embedded_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

// TestRefusedFiles: what a file must not open or set is refused in one line, which names
// the line of the file and what to do, and nothing is written.
func TestRefusedFiles(t *testing.T) {
	imports := func(lines ...string) string {
		return "accounts {\n APP {\n  users: [{user: a, password: b}]\n  imports: [\n" + strings.Join(lines, "\n") + "\n  ]\n }\n}"
	}
	service := func(account, subject string) string {
		return imports(`{service: {account: ` + account + `, subject: "` + subject + `"}, to: "x.>"}`)
	}
	t.Setenv("EMPTY", "")
	t.Setenv("NUMBER", "7777")
	const certificate = "tls {\n cert_file: CERT\n key_file: KEY\n}"
	refused := map[string][]string{ // what is refused, by what the error says
		"FILE:2: cluster: ":                                          {"\ncluster {\n port: 6222\n}"},
		"FILE:1: gateway: ":                                          {"gateway {}"},
		"FILE:3: store_dir: give --store-dir":                        {"\n\nstore_dir: x"},
		"FILE:1: jetstream: give --store-dir":                        {"jetstream: enabled", "jetstream {\n store_dir: x\n}"},
		"FILE:1: operator: ":                                         {"operator: x"},
		"FILE:1: authorization: put users into an account":           {"authorization {\n user: a\n}"},
		"FILE:1: Authorization: put users into an account":           {"Authorization {\n user: a\n}"},
		"FILE:1: listen: give --listen":                              {"listen: 0.0.0.0:4222"},
		"FILE:1: system_account: leave it out":                       {"system_account: X"},
		"FILE:1: mqtt: leave it out":                                 {"mqtt {\n port: 1883\n}"},
		"FILE:1: max_payload: leave it out":                          {"max_payload: 1"},
		"FILE: ":                                                     {"what: is\nthis"},
		"FILE:":                                                      {"a {\n b: [\n"},
		"variable reference for 'NO_SUCH_VARIABLE_IS_SET' on line 1": {"x: $NO_SUCH_VARIABLE_IS_SET"},
		"none.conf":                                                  {"include none.conf"},
		"FILE:1: accounts: use NAME { … }":                           {"accounts: [A]"},
		"FILE:2: account LAPSE: ":                                    {"accounts {\n LAPSE {}\n}"},
		"FILE:3: account clients: ":                                  {"accounts {\n\n clients {}\n}"},
		"FILE:2: account SYS: ":                                      {"accounts {\n SYS {}\n}"},
		"FILE:2: account $SYS: ":                                     {"accounts {\n \"$SYS\" {}\n}"},
		"FILE:3: user client: ":                                      {"accounts {\n A { users: [\n {user: client, password: x}\n] }\n}"},
		"FILE:3: user " + operator + ": ":                            {"accounts {\n A { users: [\n {nkey: " + operator + "}\n] }\n}"},
		"FILE:6: account B: memory: at most 58720256 bytes remain":   {"accounts {\n A { jetstream {\n max_mem: 200MB\n} }\n B { jetstream {\n memory: 100M\n} }\n}"},
		"FILE:3: user a: the password is empty":                      {"accounts {\n A { users: [\n {user: a}\n] }\n}", "accounts {\n A { users: [\n {user: a, password: $EMPTY}\n] }\n}"},
		"FILE:3: password: put it in quotes":                         {"accounts {\n A { users: [\n {user: a, password: 7777}\n] }\n}", "accounts {\n A { users: [\n {user: a, password: $NUMBER}\n] }\n}"},
		`FILE:2: unknown field "user"`:                               {"accounts {\n A { user: x }\n}"},
		"FILE:1: ":                                                   {"tls {\n cert_file: none.pem\n key_file: none.pem\n}", "http: nowhere:x"},
		"FILE:1: no_auth_user: unknown user client: name a user of this file": {"no_auth_user: client"},
		"FILE:1: no_auth_user: unknown user processor":                        {"no_auth_user: processor"},
		"FILE:1: no_auth_user: unknown user " + operator:                      {"no_auth_user: " + operator},
		"FILE:1: no_auth_user: unknown user nobody":                           {"no_auth_user: nobody"},
		"FILE:2: websocket requires TLS":                                      {"\nwebsocket {\n port: 1\n}"},
		"FILE:2: http: others can connect to 0.0.0.0:8222":                    {"\nhttp: 8222\n" + imports()},
		"FILE:1: http: others can connect to [::]:8222":                       {"http: \"[::]:8222\""},
		"FILE:1: https: others":                                               {"https: 192.0.2.1:1\n" + certificate},
		"FILE:2: https: leave out http":                                       {"http: 127.0.0.1:1\nhttps: 127.0.0.1:1\n" + certificate},
		"FILE:1: https: give tls":                                             {"https: 127.0.0.1:1"},
		"FILE:1: websocket: others can connect to 0.0.0.0:1":                  {"websocket {\n port: 1\n no_tls: true\n}", "websocket {\n port: 1, no_tls: true, no_auth_user: a\n}\n" + imports()},
		"Duplicate user": {"accounts {\n A { users: [{user: a, password: b}], exports: [{service: x}] }\n B { users: [{user: a, password: b}] }\n}"},
		"FILE:1: websocket: no_auth_user: unknown user client": {"websocket {\n port: 1\n no_tls: true\n no_auth_user: client\n}"},
		"FILE:1: leafnodes: without users":                     {"leafnodes {\n port: 7422\n}"},
		"FILE:2: leafnodes: name an account of this file":      {"\nleafnodes {\n port: 7422, authorization { user: x, password: y, account: CLIENTS }\n}"},
		"FILE:1: leafnodes: name an account of this file": {
			"leafnodes {\n port: 7422, authorization { users: [{ user: x, password: y, account: LAPSE }] }\n}",
			"leafnodes {\n remotes: [{url: \"nats://n1\", account: CLIENTS}]\n}", "leafnodes {\n port: 7422, authorization { user: x, password: y, account: \"$SYS\" }\n}",
			"leafnodes {\n port: 7422, authorization { user: x, password: y }\n}", "leafnodes {\n remotes: [{url: \"nats://n1\", account: \"$SYS\"}]\n}",
			"leafnodes {\n remotes: [{url: \"nats://n1\"}]\n}",
		},
		"FILE:1: leafnodes: a password is empty": {
			"leafnodes {\n port: 1, authorization { user: x, account: APP }\n}\n" + imports(),
			"leafnodes {\n port: 1, authorization { users: [{user: x, password: $EMPTY, account: APP}] }\n}\n" + imports(),
		},
		"FILE:2: leafnodes: others can connect to 0.0.0.0:7422": {"no_auth_user: a\nleafnodes {\n port: 7422\n}\n" + imports()},
		"FILE:2: websocket: others can connect to 0.0.0.0:1":    {"no_auth_user: a\nwebsocket {\n port: 1, no_tls: true\n}\n" + imports()},
		"FILE:1: tls: verify_and_map":                           {"tls {\n cert_file: CERT\n key_file: KEY\n ca_file: CERT\n verify_and_map: true\n}"},

		`FILE:5: account NONE: there is none to import from`: {service("NONE", "x")},
		`"" is no subject`: {service("CLIENTS", "")},
		"FILE:6: account APP: stream _INBOX.> of LAPSE: import an inbox prefix": {imports("", `{STREAM: {Account: LAPSE, Subject: "_INBOX.>"}}`)},
	}
	for account, subjects := range map[string]string{
		"CLIENTS": "$JS.API.> $JS.API.INFO $JS.API.STREAM.> $JS.API.STREAM.DELETE.LAPSE_main $JS.API.CONSUMER.MSG.NEXT.LAPSE_main.billing $JS.API.STREAM.INFO.LAPSE_main_MUTATIONS $JS.API.STREAM.INFO.LAPSE_other lapse.other.api.> lapse.> > $SRV.>",
		"LAPSE":   "$JS.API.INFO $JS.API.STREAM.INFO.LAPSE_main $JS.API.CONSUMER.CREATE.> lapse.main.mutations.> lapse.main.append.>",
	} {
		for subject := range strings.FieldsSeq(subjects) {
			refused["FILE:5: account APP: service "+subject+" of "+account] = []string{service(account, subject)}
		}
	}
	for _, durable := range []string{"LAPSE_main.*", "LAPSE_main.>", "LAPSE_main.a.b", "*.billing", "LAPSE_main.lapse_server_x", "LAPSE_main_MUTATIONS.x"} {
		refused["of one durable"] = append(refused["of one durable"], service("LAPSE", "$JS.API.CONSUMER.MSG.NEXT."+durable))
	}
	for _, stream := range []string{`account: LAPSE, subject: "_INBOX.*.>"`, `account: LAPSE, subject: "_INBOX.app"`, `account: LAPSE, subject: "lapse.main.events.>"`, `account: CLIENTS, subject: "_INBOX.app.>"`} {
		refused["FILE:5: account APP: stream "] = append(refused["FILE:5: account APP: stream "], imports("{stream: {"+stream+"}}"))
	}
	for want, texts := range refused {
		for _, text := range texts {
			refuseFile(t, text, want)
		}
	}
}

// refuseFile fails the test unless a configuration is refused, in one line that names the file.
func refuseFile(t *testing.T, text, want string) {
	t.Helper()
	dir := t.TempDir()
	file, store := filepath.Join(dir, "user.conf"), filepath.Join(dir, "data")
	cert, key := writeCertificate(t, dir)
	text = strings.NewReplacer("CERT", cert, "KEY", key).Replace(text)
	check(t, os.WriteFile(file, []byte(text), 0o600))
	listen := "127.0.0.1:-1"
	if strings.Contains(want, "0.0.0.0:8222") {
		listen = "0.0.0.0:-1" // where monitoring listens, too
	}
	s, err := embedded.Start(embedded.Options{StoreDir: store, Listen: listen, Databases: []schema.DatabaseName{db}, Config: file, Operator: operator, NoTLS: true})
	if err == nil {
		s.Shutdown()
		t.Errorf("not refused: %s", text)
		return
	}
	if line := err.Error(); !strings.Contains(line, strings.ReplaceAll(want, "FILE", file)) || !strings.Contains(line, file) || strings.Contains(line, "\n") || !strings.Contains(line, "--nats-config") {
		t.Errorf("%s\n%s\nwant %s", text, line, want)
	}
	if _, err := os.Stat(store); err == nil {
		t.Errorf("%s\nthe store directory exists", text)
	}
}

const operator = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"

// userConfig is a file with everything that it may have.
const userConfig = `
LIMIT = 64MB
accounts {
  APP {
    jetstream: { max_file: $LIMIT, max_mem: 1K }
    users: [
      { user: app, password: "a \"quoted\\ $word" }
      { user: hashed, password: $HASH, permissions: { publish: "none.>" } }
    ]
    imports: [
      { service: { account: CLIENTS, subject: "lapse.main.api.>" } }
      { service: { account: CLIENTS, subject: "lapse.main.mutations.document.>" } }
    ]
    mappings: { old: [ { destination: new, weight: 100% } ] }
  }
  OTHER {
    users: [{ nkey: ` + operator + ` }]
    imports: [{ service: { account: CLIENTS, subject: "lapse.main.api.>" } }]
  }
}
http: "127.0.0.1:-1"
tls { cert_file: $CERT, key_file: $KEY, timeout: 5.5 }
websocket { listen: "127.0.0.1:-1", tls { cert_file: $CERT, key_file: $KEY } }
leafnodes { listen: "127.0.0.1:-1" }
`

// TestUserFile: with a file, clients log in by TLS, into an account with streams of its own
// and lapse beside them. lapse's own connections go on.
func TestUserFile(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir)
	t.Setenv("CERT", cert)
	t.Setenv("KEY", key)
	t.Setenv("HASH", `"$2a$04$4Zr8G9dYh3o0y2M6SgqMCuQ8mcB1zSvG7Y1e5g4o3eZQ3Jt8Yw0eK"`)
	file := filepath.Join(dir, "user.conf")
	check(t, os.WriteFile(file, []byte(userConfig), 0o600))
	o := embedded.Options{StoreDir: filepath.Join(dir, "data"), Listen: "127.0.0.1:-1", Databases: []schema.DatabaseName{db}, Config: file}
	s, _, _ := startLog(t, o)
	if !strings.HasPrefix(s.URL(), "tls://") {
		t.Error(s.URL())
	}
	service := connected(t)(s.ConnectService())
	subscribe(t, service, db.API()+"status", func(m *nats.Msg) { _ = m.Respond([]byte(m.Reply)) })
	dial := func(opts ...nats.Option) (*nats.Conn, error) {
		return nats.Connect(s.URL(), append([]nats.Option{quiet, nats.RootCAs(cert), nats.Timeout(patience)}, opts...)...)
	}
	for what, opts := range map[string][]nats.Option{
		"no credentials":  nil,
		"wrong password":  {nats.UserInfo("app", "x")},
		"a user of lapse": {nats.UserInfo("client", "")},
	} {
		if nc, err := dial(opts...); err == nil {
			nc.Close()
			t.Errorf("%s: logged in", what)
		}
	}
	app := connected(t)(dial(nats.UserInfo("app", `a "quoted\ $word`)))
	request := func(nc *nats.Conn, subject string) string {
		t.Helper()
		m, err := nc.Request(subject, []byte("{}"), patience)
		if err != nil {
			t.Fatal(subject, err)
		}
		return string(m.Data)
	}
	if reply := request(app, "lapse.main.api.status"); !strings.HasPrefix(reply, "_R_.") {
		t.Error(reply)
	}
	if reply := request(app, "lapse.main.mutations.document.upsert.c.a"); !strings.Contains(reply, `"seq":1`) {
		t.Error(reply)
	}
	js := jetStream(t, app)
	kv, err := js.CreateKeyValue(ctx(t), jetstream.KeyValueConfig{Bucket: "settings", MaxBytes: 1 << 20})
	check(t, err)
	must(t)(kv.PutString(ctx(t), "a", "b"))
	if _, err := js.Stream(ctx(t), log); err == nil {
		t.Error("the account sees the log")
	}
	client := connected(t)(s.ConnectClient())
	if reply := request(client, "lapse.main.api.status"); !strings.HasPrefix(reply, "_INBOX.") {
		t.Error(reply)
	}
}

// TestReload: certificates, users and accounts change while the server runs. Connections of
// others stay, and an account that is new reaches lapse at once. A file with an error, or
// with a change that needs a restart, changes nothing.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir)
	file := filepath.Join(dir, "user.conf")
	const account = `{
		jetstream: enabled
		users: [{ user: %, password: % }]
		imports: [
			{ service: { account: CLIENTS, subject: "lapse.main.api.>" } }
			{ service: { account: LAPSE, subject: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.%" }, to: "LAPSE.API.CONSUMER.MSG.NEXT.LAPSE_main.%" }
		]
	}
`
	write := func(port string, names ...string) {
		t.Helper()
		text := "http: \"127.0.0.1:" + port + "\"\ntls { cert_file: " + cert + ", key_file: " + key + " }\naccounts {\n"
		for _, name := range names {
			text += strings.ToUpper(name) + " " + strings.ReplaceAll(account, "%", name)
		}
		check(t, os.WriteFile(file, []byte(text+"}\n"), 0o600))
	}
	write("-1", "a", "b")
	s, streams, js := startLog(t, embedded.Options{StoreDir: filepath.Join(dir, "data"), Config: file})
	service := connected(t)(s.ConnectService())
	subscribe(t, service, db.API()+"status", func(m *nats.Msg) { _ = m.Respond([]byte("ok")) })
	stored := appendTo("c.DocumentCreated")
	must(t)(js.Publish(ctx(t), stored, nil))
	must(t)(js.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy}))
	dial := func(name string) (*nats.Conn, error) {
		return nats.Connect(s.URL(), quiet, nats.RootCAs(cert), nats.Timeout(patience), nats.UserInfo(name, name), nats.NoReconnect())
	}
	works := func(nc *nats.Conn) {
		t.Helper()
		if m, err := nc.Request("lapse.main.api.status", nil, patience); err != nil || string(m.Data) != "ok" {
			t.Error(m, err)
		}
	}
	a := connected(t)(dial("a"))
	b := connected(t)(dial("b"))
	works(a)

	_, _ = writeCertificate(t, dir) // another one
	write("-1", "a", "c")
	check(t, s.Reload())
	works(a)
	eventually(t, "the connection of a removed account ends", b.IsClosed)
	c := connected(t)(dial("c")) // trusts the new certificate only
	works(c)
	if m, err := c.Request("LAPSE.API.CONSUMER.MSG.NEXT.LAPSE_main.c", []byte(`{"batch":1}`), patience); err != nil || m.Subject == "" || m.Header.Get("Status") != "" {
		t.Errorf("pull: %+v, %v", m, err)
	}
	if old, err := dial("b"); err == nil {
		old.Close()
		t.Error("a removed user logged in")
	}

	for _, change := range []func(){
		func() { write("8222", "a", "c") }, // needs a restart
		func() { write("-1", "a", "LAPSE") },
		func() { _ = os.WriteFile(file, []byte("accounts { A { jetstream { max_file: 900000TB } } }"), 0o600) },
		func() { _ = os.Remove(file) },
		func() { _ = os.WriteFile(file, []byte("include user.conf"), 0o600) },
		func() {
			_ = os.WriteFile(file, []byte("include other.conf"), 0o600)
			_ = os.WriteFile(filepath.Join(dir, "other.conf"), []byte("accounts { include user.conf }"), 0o600)
		},
	} {
		change()
		if err := s.Reload(); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "--nats-config") {
			t.Error(err)
		}
		works(a)
		works(c)
	}
	if _, err := js.Publish(ctx(t), stored, nil); err != nil || streams.Stats().Reconnects > 0 || service.Stats().Reconnects > 0 || a.Stats().Reconnects > 0 {
		t.Errorf("%v, reconnects %d, %d", err, streams.Stats().Reconnects, service.Stats().Reconnects)
	}
}

// writeCertificate writes a certificate for 127.0.0.1 that is its own authority, and its
// key.
func writeCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	must := func(err error) {
		check(t, err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	must(err)
	template := &x509.Certificate{SerialNumber: serial, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public}), 0o600))
	must(os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}
