package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/lapsedb/lapse/test/harness"
)

var check = harness.Check

// patience bounds each wait for a condition in a page.
const patience = 60 * time.Second

// browser is the one browser of the test binary, started by the first test that needs it.
var browser struct {
	once   sync.Once
	ctx    context.Context
	cancel []context.CancelFunc
	err    error
}

func startBrowser() {
	b := &browser
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		b.err = fmt.Errorf("no browser is installed: apt-get install chromium")
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("renderer-process-limit", "2"), // as many as suit two cores
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-US"), chromedp.Env("TZ=Europe/Berlin"))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b.ctx, b.cancel = ctx, []context.CancelFunc{cancel, end}
	b.err = chromedp.Do(ctx)
}

func closeBrowser() {
	if browser.ctx != nil {
		_ = chromedp.Cancel(browser.ctx)
	}
	for _, cancel := range browser.cancel {
		cancel()
	}
}

// tab is a browser tab. An error in its console, or a violation of the content security
// policy, fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string // of the console, with a trailing slash

	mu       sync.Mutex
	expected []string // parts of errors that the test causes
	errors   []string
}

// open opens a tab. Without a browser it skips the test, or fails it in CI.
func open(t *testing.T, url string) *tab {
	t.Helper()
	browser.once.Do(startBrowser)
	if browser.err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(browser.err)
		}
		t.Skip(browser.err)
	}
	ctx, cancel := chromedp.NewContext(browser.ctx)
	b := &tab{t: t, ctx: ctx, url: url + "/"}
	// A page polls the status. On a stalled machine lapse replies that it could not find
	// out in time; the next poll succeeds.
	b.expect("503 (Service Unavailable) " + b.url + "api/status")
	// The first call creates the tab, which ends with the context of that call.
	check(t, errors.Join(chromedp.Do(ctx), chromedp.Listen(ctx, b.hear)))
	t.Cleanup(func() {
		if t.Failed() {
			b.keep()
		}
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.errors {
			t.Errorf("the browser says: %s", text)
		}
	})
	// Each tab behaves as if it had the focus.
	focus := command(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.do(command(log.Enable, cdp.Empty{}), focus, chromedp.EmulateViewport(1280, 800))
	return b
}

func (b *tab) hear(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, a := range e.Args {
				text += string(a.Value) + a.Description + " "
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			text = e.Entry.Text + " " + e.Entry.URL
		}
	}
	if text == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range b.expected {
		if strings.Contains(text, part) {
			return
		}
	}
	b.errors = append(b.errors, text)
}

// expect allows errors with this text, which the test causes: the browser logs every
// reply of 400 and above.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, part)
}

// do runs actions, all of them together within patience.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for _, action := range actions {
		if err := chromedp.Do(ctx, action); err != nil {
			b.t.Fatalf("%v\nthe page has: %.2000s", err, b.text())
		}
	}
}

// command returns a command of the browser's protocol as an action.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (b *tab) width(pixels int64) { b.do(chromedp.EmulateViewport(pixels, 800)) }

// scheme sets the colour scheme, light or dark.
func (b *tab) scheme(name string) {
	b.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}))
}

// visit opens a page by its fragment after #/. If the console is loaded, on another page, it
// follows the fragment as a link does.
func (b *tab) visit(fragment string) {
	b.t.Helper()
	follows := eval[bool](b, `(hash => {
		if (location.hash.split('?')[0] === hash.split('?')[0] || !document.querySelector('main h1')) return false;
		document.querySelectorAll('h1').forEach(e => { e.dataset.former = ''; });
		location.hash = hash;
		return true;
	})($?)`, "#/"+fragment)
	if !follows {
		b.load(fragment)
		return
	}
	b.until(`document.querySelector('h1:not([data-former])') !== null`)
}

// load reloads the console at a fragment.
func (b *tab) load(fragment string) {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(b.url+"#/"+fragment), chromedp.WaitVisible(chromedp.CSS("h1")))
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string, args ...any) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script(expression, args)))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// script replaces each $? by an argument as JSON.
func script(expression string, args []any) string {
	for _, arg := range args {
		text, _ := json.Marshal(arg)
		expression = strings.Replace(expression, "$?", string(text), 1)
	}
	return expression
}

// until waits for an expression to be true. It counts as false while elements that it
// uses are missing.
func (b *tab) until(expression string, args ...any) {
	b.t.Helper()
	expression = "(() => { try { return " + script(expression, args) + " } catch (e) { if (e instanceof TypeError) return false; throw e } })()"
	b.do(chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience)))
}

// arrives waits until the browser is at a URL with this end. A navigation under way fails
// what runs in the page before it.
func (b *tab) arrives(end string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for at, err := "", error(nil); err != nil || !strings.HasSuffix(at, end); at, err = chromedp.Run(ctx, chromedp.Evaluate[string](`document.readyState + location.href`)) {
		if ctx.Err() != nil {
			b.t.Fatalf("it is at %s, not at %s: %v", at, end, err)
		}
	}
}

// sees waits until the page contains a text.
func (b *tab) sees(text string) {
	b.t.Helper()
	b.until(`document.body.innerText.includes($?)`, text)
}

// click clicks the first enabled element of a selector that contains text, "" for any.
func (b *tab) click(selector, text string) {
	b.t.Helper()
	b.until(`[...document.querySelectorAll($?)].some(e => e.textContent.includes($?) && !e.disabled)`, selector, text)
	eval[any](b, `void [...document.querySelectorAll($?)].find(e => e.textContent.includes($?) && !e.disabled).click()`, selector, text)
}

// fill types a text over the content of a field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.until(`document.querySelector($?) !== null`, selector)
	eval[any](b, `(e => { e = e.shadowRoot?.querySelector('.cm-content') ?? e; e.focus(); if (e.select) e.select(); else document.execCommand('selectAll'); })(document.querySelector($?))`, selector)
	b.do(chromedp.KeyEvent(text))
}

// pick chooses the option of a select.
func (b *tab) pick(selector, value string) {
	b.t.Helper()
	b.until(`[...(document.querySelector($?)?.options ?? [])].some(o => o.value === $?)`, selector, value)
	eval[any](b, `(s => { s.value = $?; s.dispatchEvent(new Event('change', {bubbles: true})); })(document.querySelector($?))`, value, selector)
}

func (b *tab) text() (text string) {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, _ = chromedp.Run(ctx, chromedp.Evaluate[string](`location.hash + '\n' + document.body.innerText`))
	return text
}

// keep saves a picture of the page of a failed test.
func (b *tab) keep() {
	path := filepath.Join(os.TempDir(), "lapse-console", strings.ReplaceAll(b.t.Name(), "/", "_")+".png")
	if b.picture(path, true) == nil {
		b.t.Logf("a picture of the page is in %s", path)
	}
}

// picture writes a picture of the whole page, or of its visible part.
func (b *tab) picture(path string, whole bool) error {
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	shot, err := chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) (page.CaptureScreenshotResult, error) {
		return cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &whole})
	})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, shot.Data, 0o644)
	}
	return err
}
