package test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/rights"
)

// TestJWT: with the accounts that docs/accounts.md makes, an application's account that has
// streams of its own can do all that lapse's own client does, and an account without
// activation tokens nothing.
func TestJWT(t *testing.T) {
	t.Parallel()
	n := accountsOfThePage(t)
	url := n.serve("resolver.conf").ClientURL()

	for _, user := range []string{"service", "gate-log", "gate-clients"} {
		rights.Check(t, user, func(opts ...nats.Option) (*nats.Conn, error) {
			return nats.Connect(url, append(opts, nats.UserCredentials(n.path(user+".creds")))...)
		})
	}
	var logins []string
	for _, connection := range []string{"log", "bulk", "service", "gate-log", "gate-clients"} {
		logins = append(logins, "--creds", connection+"="+n.path(connection+".creds"))
	}
	harness.ServeRemote(t, url, t.TempDir(), io.Discard, append(logins, "--durability", "os")...)
	login := func(account string) []string {
		return []string{"--server", url, "--creds", n.path(account + ".creds"), "--js-api-prefix", "LAPSE.API", "--inbox-prefix", "_INBOX.app"}
	}

	// While NATS loads an account, for its first connection, its imports have no responders.
	eventually(t, "requests are answered", func() bool { return harness.Run(t, nil, append([]string{"status"}, login("app")...)...).Code == 0 })
	commandsInAccount(t, login("app"))

	// The same by a context, and in the console.
	settings, err := json.Marshal(map[string]string{"url": url, "creds": n.path("app.creds"), "jetstream_api_prefix": "LAPSE.API", "inbox_prefix": "_INBOX.app"})
	check(t, err)
	n.write("app.json", string(settings))
	if got := harness.Run(t, nil, "export", "--context", n.path("app.json")).OK(); !strings.Contains(got, "DocumentCreated") {
		t.Errorf("export by a context: %s", got)
	}
	console := harness.StartProcess(t, harness.Command(t, "console", "--context", n.path("app.json"), "--console", harness.FreeAddr(t)), nil)
	t.Cleanup(console.Kill)
	select {
	case <-console.Ready:
	case <-console.Ended:
	}
	address := consoleURL.FindStringSubmatch(console.Output())
	if address == nil {
		t.Fatal(console.Output())
	}
	if got := firstEvent(t, address[1]+"/api/feed?from=1"); !strings.Contains(got, "CollectionCreated") {
		t.Errorf("console: %s", got)
	}

	// In Go.
	connect := func(inboxes string) *client.Client {
		t.Helper()
		c, err := client.Connect(url, client.WithCreds(n.path("app.creds")), client.APIPrefix("LAPSE.API"), client.WithNATSOptions(nats.CustomInboxPrefix(inboxes)))
		check(t, err)
		t.Cleanup(c.Close)
		return c
	}
	c, ctx := connect("_INBOX.app"), t.Context()
	goInAccount(t, c, "billing")

	// What is not imported is said.
	for what, loop := range map[string]func() error{
		"import that subject as a stream from the account of the log": func() error {
			return last(connect("_INBOX.other").Changes(ctx, client.FromStart()))
		},
		"import $JS.API.CONSUMER.MSG.NEXT.LAPSE_main.mail, as LAPSE.API.CONSUMER.MSG.NEXT.LAPSE_main.mail, from the account of the log": func() error {
			return last(c.Changes(ctx, client.FromStart(), client.Durable("mail")))
		},
	} {
		if err := loop(); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}

	n.share(url)
	handled := 0
	err = c.Handle(ctx, func(context.Context, *client.Event) error { handled++; return nil },
		client.Durable("mail"), client.FromStart(), client.UntilNow())
	if err != nil || handled < 2 {
		t.Errorf("Handle of one more: %d events, %v", handled, err)
	}

	for _, line := range []string{"status", "export", "status --all"} {
		if r := harness.Run(t, nil, append(strings.Fields(line), login("other")...)...); r.Code != 1 || !strings.Contains(r.Stderr, "503 unavailable") {
			t.Errorf("%s without tokens: %+v", line, r)
		}
	}
}

// TestCredentialsEnd: lapse and its clients whose credentials end while they run say so, go on
// trying, and go on with renewed ones. A reader misses nothing.
func TestCredentialsEnd(t *testing.T) {
	t.Parallel()
	n := newNSC(t)
	n.add("SYS")
	n.add("APP").Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	n.generate("resolver.conf", "SYS")
	login := func(name string, until int64) {
		n.user("APP", name, jwt.Permissions{}, until)
		n.creds("APP", name, name+".creds")
	}
	for _, name := range []string{"lapse", "reader", "other"} {
		login(name, forever)
	}
	ns := n.serve("resolver.conf")
	url := ns.ClientURL()
	s := harness.ServeRemote(t, url, t.TempDir(), nil, "--creds", n.path("lapse.creds"), "--durability", "os")
	connect := func(name string) *client.Client {
		t.Helper()
		c, err := client.Connect(url, client.WithCreds(n.path(name+".creds")), client.WithTimeout(5*time.Second))
		n.must(err)
		t.Cleanup(c.Close)
		return c
	}
	other, reader := connect("other"), connect("reader")
	orders, err := other.CreateCollection(t.Context(), "orders")
	n.must(err)
	create := func(id string) {
		t.Helper()
		eventually(t, "a document is created", func() bool {
			_, err = client.Upsert(t.Context(), orders, id, struct{}{})
			return err == nil
		})
	}
	ids := created(t, reader)
	reads := func(want string) {
		t.Helper()
		select {
		case id := <-ids:
			if id != want {
				t.Fatalf("the reader has %q, want %q", id, want)
			}
		case <-time.After(patience):
			t.Fatalf("the reader has not %q\n%s", want, s.Stderr())
		}
	}
	create("a")
	reads("a")

	end := time.Now().Add(2 * time.Second).Unix()
	login("lapse", end)
	login("reader", end)
	open, err := ns.Connz(nil)
	n.must(err)
	for _, c := range open.Conns {
		_ = ns.DisconnectClientByID(c.Cid) // it logs in with what its file has now
	}
	eventually(t, "lapse says so", func() bool {
		return strings.Contains(s.Stderr(), "NATS refuses the credentials: renew them, lapse goes on trying")
	})
	refused := func(c *client.Client, want string) {
		t.Helper()
		eventually(t, want, func() bool {
			_, err := c.Status(t.Context())
			return err != nil && strings.Contains(err.Error(), want)
		})
	}
	refused(other, `no process serves database "main" here now`)
	refused(reader, "refuses these credentials")
	login("lapse", forever)
	create("b")
	refused(reader, "refuses these credentials")
	login("reader", forever)
	reads("b")
}

// created returns the ids of documents as a reader hears of their creation, and its error.
func created(t *testing.T, reader *client.Client) <-chan string {
	ids := make(chan string, 10)
	go func() {
		for e, err := range reader.Changes(t.Context(), client.FromStart(), client.OfType(client.DocumentCreated)) {
			if err != nil {
				ids <- err.Error()
				return
			}
			ids <- e.ID
		}
	}()
	return ids
}

// accountsOfThePage makes the accounts of docs/accounts.md, and OTHER with the imports of APP
// and no token.
func accountsOfThePage(t *testing.T) *nsc {
	t.Helper()
	n := runNSC(t, "../docs/accounts.md")
	other := n.add("OTHER")
	for _, one := range n.accounts["APP"].Imports {
		without := *one
		without.Token = ""
		other.Imports.Add(&without)
	}
	n.user("OTHER", "other", jwt.Permissions{}, forever)
	n.creds("OTHER", "other", "other.creds")
	n.generate("resolver.conf", "SYS")
	return n
}

// share shares one more durable, mail, with APP, while the servers run.
func (n *nsc) share(url string) {
	n.t.Helper()
	for _, command := range []string{
		"add export --account LAPSE --private --subject $JS.API.CONSUMER.MSG.NEXT.LAPSE_main.mail --service --response-type Stream",
		"generate activation --account LAPSE --target-account APP --subject $JS.API.CONSUMER.MSG.NEXT.LAPSE_main.mail --output-file token.jwt",
		"add import --account APP --token token.jwt --local-subject LAPSE.API.CONSUMER.MSG.NEXT.LAPSE_main.mail",
		"add export --account CLIENTS --private --subject $JS.ACK.LAPSE_main.mail.> --service",
		"generate activation --account CLIENTS --target-account APP --subject $JS.ACK.LAPSE_main.mail.> --output-file token.jwt",
		"add import --account APP --token token.jwt",
		"add user --account SYS --name push",
		"generate creds --account SYS --name push --output-file push.creds",
	} {
		n.run(strings.Fields(command))
	}
	n.push(url, "LAPSE", "CLIENTS", "APP")
}

// last returns the error that ends a loop, at the latest after its first event.
func last(loop iter.Seq2[*client.Event, error]) error {
	for _, err := range loop {
		return err
	}
	return nil
}

// firstEvent returns the first event of a stream of a console.
func firstEvent(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	check(t, err)
	response, err := http.DefaultClient.Do(r)
	check(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			return lines.Text()
		}
	}
	return fmt.Sprint(response.Status, lines.Err())
}

// nsc has what the commands of nsc make: an operator, accounts and users.
type nsc struct {
	t        *testing.T
	dir      string
	operator nkeys.KeyPair
	system   string // account
	keys     map[string]nkeys.KeyPair
	accounts map[string]*jwt.AccountClaims
	users    map[string]string // credentials, by account/user
}

// nscCommand stands in for nsc: it notes its arguments, each in a line, with an empty line
// after them.
const nscCommand = "#!/bin/sh\nprintf '%s\\n' \"$@\" '' >>nsc.log\n"

func newNSC(t *testing.T) *nsc {
	return &nsc{t: t, dir: t.TempDir(), operator: pair(t, nkeys.CreateOperator), keys: map[string]nkeys.KeyPair{}, accounts: map[string]*jwt.AccountClaims{}, users: map[string]string{}}
}

// runNSC runs the blocks of a page that have nsc commands, or deploy/nsc.sh, and does what
// these say, with the flags that nsc has.
func runNSC(t *testing.T, page string) *nsc {
	t.Helper()
	n := newNSC(t)
	text, err := os.ReadFile(page)
	check(t, err)
	var script strings.Builder
	script.WriteString("set -eu\n")
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], "nsc") {
			script.WriteString(block[1])
		}
	}
	deploy, err := filepath.Abs("../deploy")
	n.must(err)
	n.must(os.Symlink(deploy, n.path("deploy")))
	n.must(os.WriteFile(n.path("nsc"), []byte(nscCommand), 0o700))
	cmd := child.CommandContext(t.Context(), t, "sh", "-c", script.String())
	cmd.Dir, cmd.Env = n.dir, append(cmd.Env, "PATH="+n.dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	log, err := os.ReadFile(n.path("nsc.log"))
	check(t, err)
	for line := range strings.SplitSeq(strings.TrimSuffix(string(log), "\n\n"), "\n\n") {
		n.run(strings.Split(line, "\n"))
	}
	return n
}

func pair(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	key, err := create()
	check(t, err)
	return key
}

func public(t *testing.T, key nkeys.KeyPair) string {
	t.Helper()
	text, err := key.PublicKey()
	check(t, err)
	return text
}

func (n *nsc) path(name string) string { return filepath.Join(n.dir, name) }

func (n *nsc) must(err error) {
	n.t.Helper()
	check(n.t, err)
}

func (n *nsc) write(name, text string) {
	n.t.Helper()
	n.must(os.WriteFile(n.path(name), []byte(text), 0o600))
}

func (n *nsc) account(name string) *jwt.AccountClaims {
	n.t.Helper()
	a := n.accounts[name]
	if a == nil {
		n.t.Fatalf("there is no account %q", name)
	}
	return a
}

// run does one command.
func (n *nsc) run(args []string) {
	n.t.Helper()
	verb := strings.Join(args[:min(2, len(args))], " ")
	f := pflag.NewFlagSet(verb, pflag.ContinueOnError)
	account := func() *string { return f.String("account", "", "") }
	parse := func() {
		n.t.Helper()
		if err := f.Parse(args[2:]); err != nil {
			n.t.Fatalf("nsc %v: %v", args, err)
		}
	}
	switch verb {
	case "add operator":
		sys := f.Bool("sys", false, "")
		parse()
		if *sys {
			n.system = "SYS"
			n.add(n.system)
		}
	case "add account":
		parse()
		n.add(f.Arg(0))
	case "edit account":
		disk, memory := f.String("js-disk-storage", "0", ""), f.String("js-mem-storage", "0", "")
		streams, consumers := f.Int64("js-streams", -1, ""), f.Int64("js-consumer", -1, "")
		parse()
		n.account(f.Arg(0)).Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: bytesOf(n.t, *disk), MemoryStorage: bytesOf(n.t, *memory), Streams: *streams, Consumer: *consumers}
	case "add export":
		from, e := account(), &jwt.Export{}
		f.StringVar(&e.Name, "name", "", "")
		subject, service, responses := f.String("subject", "", ""), f.Bool("service", false, ""), f.String("response-type", jwt.ResponseTypeSingleton, "")
		f.BoolVar(&e.TokenReq, "private", false, "")
		f.DurationVar(&e.ResponseThreshold, "response-threshold", 0, "")
		parse()
		e.Subject, e.Type = jwt.Subject(*subject), jwt.Stream
		if *service {
			e.Type, e.ResponseType = jwt.Service, jwt.ResponseType(*responses)
		}
		if !e.TokenReq {
			n.t.Errorf("%s exports %s to all accounts of the operator", *from, *subject)
		}
		n.account(*from).Exports.Add(e)
	case "generate activation":
		from, to := account(), f.String("target-account", "", "")
		subject, file := f.String("subject", "", ""), f.String("output-file", "", "")
		parse()
		claims := jwt.NewActivationClaims(n.account(*to).Subject)
		claims.Name, claims.ImportSubject, claims.ImportType = *subject, jwt.Subject(*subject), jwt.Unknown
		for _, e := range n.account(*from).Exports {
			if claims.ImportSubject.IsContainedIn(e.Subject) {
				claims.ImportType = e.Type
				break
			}
		}
		token, err := claims.Encode(n.keys[*from])
		n.must(err)
		n.write(*file, token)
	case "add import":
		to, i := account(), &jwt.Import{}
		f.StringVar(&i.Name, "name", "", "")
		local, file := f.String("local-subject", "", ""), f.String("token", "", "")
		parse()
		token, err := os.ReadFile(n.path(*file))
		n.must(err)
		claims, err := jwt.DecodeActivationClaims(string(token))
		n.must(err)
		i.Subject, i.Type, i.Account, i.Token, i.LocalSubject = claims.ImportSubject, claims.ImportType, claims.Issuer, string(token), jwt.RenamingSubject(*local)
		if i.Type == jwt.Service && *local == "" {
			i.LocalSubject = jwt.RenamingSubject(i.Subject)
		}
		n.account(*to).Imports.Add(i)
	case "add user":
		of, name := account(), f.String("name", "", "")
		allowPub, denyPub, allowSub := f.StringSlice("allow-pub", nil, ""), f.StringSlice("deny-pub", nil, ""), f.StringSlice("allow-sub", nil, "")
		parse()
		n.user(*of, *name, jwt.Permissions{Pub: jwt.Permission{Allow: *allowPub, Deny: *denyPub}, Sub: jwt.Permission{Allow: *allowSub}}, forever)
	case "generate creds":
		of, name, file := account(), f.String("name", "", ""), f.String("output-file", "", "")
		parse()
		n.creds(*of, *name, *file)
	case "generate config":
		f.Bool("nats-resolver", false, "")
		sys, file := f.String("sys-account", "", ""), f.String("config-file", "", "")
		parse()
		n.generate(*file, *sys)
	default:
		n.t.Fatalf("what is nsc %v?", args)
	}
}

func bytesOf(t *testing.T, text string) (n int64) {
	t.Helper()
	var unit string
	if _, err := fmt.Sscanf(text, "%d%s", &n, &unit); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%q: %v", text, err)
	}
	return n << (10 * (strings.Index("KMG", unit) + 1) * min(1, len(unit)))
}

func (n *nsc) add(name string) *jwt.AccountClaims {
	key := pair(n.t, nkeys.CreateAccount)
	a := jwt.NewAccountClaims(public(n.t, key))
	a.Name = name
	n.keys[name], n.accounts[name] = key, a
	return a
}

// forever is the end of a user that has none.
const forever = 0

// user makes a user until a unix time.
func (n *nsc) user(account, name string, may jwt.Permissions, until int64) {
	key := pair(n.t, nkeys.CreateUser)
	u := jwt.NewUserClaims(public(n.t, key))
	u.Name, u.Permissions, u.Expires = name, may, until
	token, err := u.Encode(n.keys[account])
	n.must(err)
	seed, err := key.Seed()
	n.must(err)
	text, err := jwt.FormatUserConfig(token, seed)
	n.must(err)
	n.users[account+"/"+name] = string(text)
}

func (n *nsc) creds(account, name, file string) {
	n.t.Helper()
	text, ok := n.users[account+"/"+name]
	if !ok {
		n.t.Fatalf("account %s has no user %s", account, name)
	}
	n.write(file, text)
}

// encode returns the account as a JWT that its operator signed.
func (n *nsc) encode(name string) string {
	n.t.Helper()
	a, results := n.account(name), jwt.CreateValidationResults()
	a.Validate(results)
	for _, issue := range results.Issues {
		n.t.Errorf("account %s: %s", name, issue.Description)
	}
	token, err := a.Encode(n.operator)
	n.must(err)
	return token
}

// push gives accounts to a running server.
func (n *nsc) push(url string, accounts ...string) {
	n.t.Helper()
	nc := harness.Dial(n.t, url, nats.UserCredentials(n.path("push.creds")))
	for _, name := range accounts {
		reply, err := nc.Request("$SYS.REQ.CLAIMS.UPDATE", []byte(n.encode(name)), time.Minute)
		n.must(err)
		if !strings.Contains(string(reply.Data), `"code":200`) {
			n.t.Errorf("push %s: %s", name, reply.Data)
		}
	}
}

// serve starts a NATS server with a configuration of generate.
func (n *nsc) serve(file string) *server.Server {
	n.t.Helper()
	o, err := server.ProcessConfigFile(n.path(file))
	n.must(err)
	defaults := harness.NATSOptions(n.t.TempDir())
	o.Host, o.Port, o.JetStream, o.StoreDir = defaults.Host, defaults.Port, true, defaults.StoreDir
	o.MaxPayload, o.NoLog, o.NoSigs = defaults.MaxPayload, true, true
	return harness.StartNATS(n.t, o)
}

// generate writes a configuration as nsc does.
func (n *nsc) generate(file, system string) {
	n.t.Helper()
	operator := jwt.NewOperatorClaims(public(n.t, n.operator))
	operator.SystemAccount = n.account(system).Subject
	token, err := operator.Encode(n.operator)
	n.must(err)
	var b strings.Builder
	fmt.Fprintf(&b, "operator: %s\nsystem_account: %s\n", token, operator.SystemAccount)
	fmt.Fprintf(&b, "resolver { type: full, dir: %q, allow_delete: false, interval: \"2m\" }\nresolver_preload: {\n", n.path("jwt"))
	for _, name := range slices.Sorted(maps.Keys(n.accounts)) {
		fmt.Fprintf(&b, "%s: %s\n", n.accounts[name].Subject, n.encode(name))
	}
	b.WriteString("}\n")
	n.write(file, b.String())
}
