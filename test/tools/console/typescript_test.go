package console

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/evanw/esbuild/pkg/api"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/tools/npm"
)

// bundle returns a program with the TypeScript package and all that it imports.
func bundle(t *testing.T, program string, options api.BuildOptions) []byte {
	t.Helper()
	modules := npm.Install(t)
	src := t.TempDir() // away from the modules that the package is built with
	check(t, os.CopyFS(src, os.DirFS("../../../sdk/typescript/src")))
	options.Stdin = &api.StdinOptions{Contents: program, Loader: api.LoaderTS, ResolveDir: src}
	options.Bundle, options.Target, options.NodePaths = true, api.ES2022, []string{modules}
	options.Alias = map[string]string{
		"@lapsedb/lapse":         filepath.Join(src, "index.ts"),
		"@lapsedb/lapse/express": filepath.Join(src, "express.ts"),
	}
	result := api.Build(options)
	for _, fault := range result.Errors {
		t.Fatal(fault.Text, fault.Location)
	}
	return result.OutputFiles[0].Contents
}

// block returns the one block of a language on docs/typescript.md that has a text.
func block(t *testing.T, language, text string) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/typescript.md")
	check(t, err)
	for _, found := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(found[1], text) {
			return found[1]
		}
	}
	t.Fatalf("docs/typescript.md has no %s with %s", language, text)
	return ""
}

// writeFile writes a file that only its owner may read, and returns its path.
func writeFile[T string | []byte](t *testing.T, name string, text T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestTypeScriptInBrowser: the page of docs/typescript.md sends requests and follows a feed
// by WebSocket, also after a restart of the server. A page of another origin cannot connect.
func TestTypeScriptInBrowser(t *testing.T) {
	addr := harness.FreeAddr(t)
	script := bundle(t, strings.Replace(block(t, "js", "wsconnect"), "127.0.0.1:9222", addr, 1), api.BuildOptions{Format: api.FormatESModule})
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page.js" {
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = w.Write(script)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<link rel="icon" href="data:,"><body><button></button><script>prompt = () => "secret"</script><script type="module" src="page.js"></script>`)
	})
	origin := host(t, site)
	config := strings.NewReplacer("127.0.0.1:9222", addr, "http://127.0.0.1:8080", origin).Replace(block(t, "text", "allowed_origins"))
	server := harness.Serve(t, "--durability", "os", "--user", "page="+writeFile(t, "password", "secret\n"), "--nats-config", writeFile(t, "web.conf", config))
	lapse, err := client.Connect(strings.Replace(server.URL(), "nats://", "nats://page:secret@", 1), client.WithTimeout(patience))
	check(t, err)
	t.Cleanup(lapse.Close)
	sessions, err := lapse.CreateCollection(t.Context(), "sessions", client.TTLPerDocument())
	check(t, err)

	page := open(t, origin)
	page.expect("WebSocket connection to 'ws://" + addr) // while the server restarts
	page.do(chromedp.Navigate(page.url))
	page.sees("0 sessions")
	for i, id := range []string{"ann", "bob"} {
		if i == 1 {
			server.Stop()
			server.Restart()
		}
		put(t, sessions, fmt.Sprint("stays-", id), `{}`)
		put(t, sessions, id, `{"ttl":1}`)
		page.sees(id + " has ended.")
		page.click("button", "sessions")
		page.sees(fmt.Sprint(i+1, " sessions"))
	}

	connects := func(b *tab) string {
		eval[any](b, `void (socket => { socket.onopen = () => { document.title = 'open'; socket.close() }; socket.onerror = () => { document.title = 'refused' } })(new WebSocket($?))`, "ws://"+addr)
		b.until(`document.title !== ''`)
		return eval[string](b, `document.title`)
	}
	if got := connects(page); got != "open" {
		t.Errorf("a WebSocket of the allowed origin is %s", got)
	}
	other := open(t, host(t, http.NotFoundHandler()))
	other.expect("WebSocket connection to 'ws://" + addr)
	other.expect("404 (Not Found)")
	other.do(chromedp.Navigate(other.url))
	if got := connects(other); got != "refused" {
		t.Errorf("a WebSocket of another origin is %s", got)
	}
}

// TestExpressInBrowser: a browser keeps the cookies of an application whose sessions are in
// lapse: two tabs have one session, and a logout in one of them is final.
func TestExpressInBrowser(t *testing.T) {
	program, err := os.ReadFile(filepath.Join("testdata", "shop.ts"))
	check(t, err)
	app := writeFile(t, "shop.cjs", bundle(t, string(program), api.BuildOptions{Platform: api.PlatformNode, Format: api.FormatCommonJS}))
	node := child.CommandContext(t.Context(), t, "node", app)
	node.Env = append(node.Env, "NATS_URL="+harness.Serve(t, "--durability", "os").URL())
	output, err := node.StdoutPipe()
	if err == nil {
		err = node.Start()
	}
	check(t, err)
	t.Cleanup(func() { _ = node.Process.Kill(); _ = node.Wait() })
	url, err := bufio.NewReader(output).ReadString('\n')
	check(t, err)
	shop := strings.TrimSpace(url)
	begin := func(b *tab, path string) {
		t.Helper()
		eval[any](b, `(document.title = '', void fetch($?).then(r => r.text()).then(text => { document.title = text }))`, path)
	}
	visit := func(b *tab, path, user string) {
		t.Helper()
		begin(b, path)
		b.until(`document.title === $?`, "user: "+user)
	}
	first, second := open(t, shop), open(t, shop)
	for _, b := range []*tab{first, second} {
		b.expect("favicon.ico")
		b.do(chromedp.Navigate(b.url + "show"))
		b.sees("user: nobody")
	}
	visit(first, "login", "ann")
	visit(second, "show", "ann")
	for _, step := range []struct{ path, user, cookie string }{
		{"show", "ann", "c.expires === null"},
		{"remember", "ann", "Math.abs(c.expires - Date.now() - 3600000) < 600000"},
		{"forget", "nobody", "!c"},
		{"show", "nobody", "!c"},
		{"login", "ann", "c.expires === null"},
	} {
		visit(first, step.path, step.user)
		first.until(`(cookieStore.getAll().then(([c]) => { window.kept = `+step.cookie+` && $? }), window.kept === $?)`, step.path, step.path)
	}
	begin(first, "rename")
	visit(second, "logout", "nobody")
	first.until(`document.title !== ''`)
	visit(first, "show", "nobody")
	visit(second, "login", "ann")
	visit(first, "show", "ann")
}
