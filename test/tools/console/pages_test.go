package console

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/console"
)

// grouped formats a number as the pages do.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// dueAtOnce waits until a default TTL of one second would expire n documents at once.
func dueAtOnce(t *testing.T, coll *client.Collection, n int64) client.Forecast {
	t.Helper()
	for {
		forecast, err := coll.Forecast(t.Context(), client.WhatIf(client.DefaultTTL(time.Second)))
		check(t, err)
		if forecast.AtOnce == n {
			return forecast
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// duration fills in a duration of a page.
func (b *tab) duration(label, number, unit string) {
	b.t.Helper()
	b.pick(fmt.Sprintf(`select[aria-label="%s: unit"]`, label), unit)
	b.fill(fmt.Sprintf(`input[aria-label="%s"]`, label), number)
}

// feed follows a collection from its first event.
func (b *tab) feed(coll *client.Collection, types ...string) {
	b.t.Helper()
	// The browser draws late: events count once their rows are there.
	eval[any](b, `void (window.requestAnimationFrame = draw => setTimeout(draw, 1500))`)
	b.visit("feed?" + url.Values{"collection": {coll.Name()}, "type": types, "from": {"1"}}.Encode())
}

// TestTTLPanel: the page shows the effect of a new TTL, asks for the collection's name
// even if documents came due after the preview, and saving has that effect.
func TestTTLPanel(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.visit("collections/" + coll.Name())
	b.duration("Time to live", "1", "seconds")
	b.until(`document.querySelector('.sentence').innerText === 'There is no document yet.' && !document.querySelector('button.primary').disabled`)
	if eval[bool](b, `document.querySelector('canvas') !== null || !document.body.innerText.includes('It has no document.')`) {
		t.Error(b.text())
	}
	put(t, coll, "0", "{}")
	dueAtOnce(t, coll, 1)
	b.click("button.primary", "Save")
	b.sees("1 document will expire at once.")
	if now, err := lapse.Collection(t.Context(), coll.Name()); err != nil || now.Info().DefaultTTL != client.TTLOff {
		t.Fatalf("%+v, %v", now.Info(), err)
	}

	batch := coll.Batch()
	for i := range 1000 {
		body := map[string]any{"n": i}
		if i%4 == 0 {
			body["ttl"] = -1
		}
		batch.Upsert(fmt.Sprint(i), body)
	}
	write(t, batch)
	// What was typed is kept in the tab, across pages and a reload.
	b.visit("collections")
	b.load("collections/" + coll.Name())
	b.until(`document.querySelector('input[aria-label="Time to live"]').value === '1'`)
	b.click("button", "Discard")
	b.until(`document.querySelector('.sentence').innerText === 'No document will expire.' && document.querySelector('input[aria-label="Time to live"]').value === ''`)
	b.duration("Time to live", "1", "seconds")
	dueAtOnce(t, coll, 750)
	b.pick("label.inline select", "7d") // triggers a new count
	b.until(`document.querySelector('.sentence').innerText === '750 documents will expire at once. Today: none. 250 never do.'`)
	b.until(`document.querySelector('button.primary').disabled`)
	b.fill(".warn input", coll.Name())
	b.click("input[value=each]", "") // the name was typed for another setting
	b.click(".choices label:nth-of-type(3) input", "")
	b.until(`document.querySelector('.warn input').value === '' && document.querySelector('button.primary').disabled`)
	b.fill(".warn input", "not it")
	b.until(`document.querySelector('button.primary').disabled`)
	b.fill(".warn input", coll.Name())
	b.click("button.primary", "Save")
	b.until(`document.querySelector('.summary').innerText.includes('TTL On: 1 s') && document.activeElement.innerText === 'Saved'`)
	if changed, err := lapse.Collection(t.Context(), coll.Name()); err != nil || changed.Info().DefaultTTL != 1 || !changed.Info().PreviousImages {
		t.Fatalf("%+v, %v", changed.Info(), err)
	}
	b.feed(coll, "DocumentExpired")
	b.sees("750 events")
	if rows := eval[int](b, `document.querySelectorAll('td.expired').length`); rows != 750 {
		t.Errorf("%d rows", rows)
	}
}

// TestShorterTTL: the panel also asks for the name where many documents would expire sooner,
// and takes parts of a unit that are whole seconds.
func TestShorterTTL(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(24*time.Hour))
	batch := coll.Batch()
	for i := range 60 {
		batch.Upsert(fmt.Sprint(i), struct{}{})
	}
	write(t, batch)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.visit("collections/" + coll.Name())
	b.duration("Time to live", "0.0001", "hours")
	b.sees("Use whole seconds")
	b.fill(`input[aria-label="Time to live"]`, "1.5")
	b.sees("New, TTL On: 1 h 30 min")
	b.sees("60 documents will expire within a day. Today: 60. None expires at once.")
	b.until(`!document.querySelector('button.primary').disabled`)
	b.fill(`input[aria-label="Time to live"]`, "0.5")
	b.until(`/^60 documents will expire within an hour. Today: none before (\d\d:\d\d|\d+ \w+). None expires at once.$/.test(document.querySelector('.sentence').innerText)`)
	b.pick("label.inline select", "1h")
	b.click("button", "show 24 hours") // today's all are later
	b.until(`document.querySelectorAll('canvas').length === 2`)
	b.until(`document.querySelector('button.primary').disabled`)
	b.fill(".warn input", coll.Name())
	b.click("button.primary", "Save")
	b.until(`document.querySelector('.summary').innerText.includes('TTL On: 30 min')`)
}

// TestWarningTime: the panel sets and removes the warning time, refuses an invalid one, and
// keeps metadata; the warnings appear in the history and the feed.
func TestWarningTime(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.TTLPerDocument(), client.Metadata("owner", "shop"), client.Metadata("__proto__", `{"a":"é"}`))
	b := openConsole(t, lapse, console.Options{Write: true})
	b.visit("collections/" + coll.Name())
	b.duration("Warn before", "1.5", "seconds")
	b.sees("Warn before: use whole seconds from 1 to 2,147,483,647.")
	b.until(`document.querySelector('button.primary').disabled`)
	warns := func(want bool) {
		t.Helper()
		b.click("button.primary", "Save")
		for {
			reply, err := lapse.Do(t.Context(), "collection.get", coll.Name(), "", nil)
			check(t, err)
			if strings.Contains(string(reply.Body), `"warnBefore":600`) == want {
				return
			}
			if text := eval[string](b, `document.querySelector('form .fault:not([hidden])')?.innerText ?? ''`); text != "" {
				t.Fatalf("the page says %q, the collection is %s", text, reply.Body)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	b.duration("Warn before", "10", "minutes")
	warns(true)
	put(t, coll, "a", `{"ttl":300}`)
	b.visit("documents/" + coll.Name() + "/a")
	b.until(`/expires in (5 min|4 min)/.test(document.querySelector('.countdown')?.innerText)`)
	b.until(`document.querySelector('.timeline').innerText.includes('Warned, expires at') && document.querySelector('.state').innerText.includes('warned')`)
	b.click("label", "Relative")
	b.until(`/^expires in \S+ \S+( \d+ s)? warned 5 min by its own ttl$/.test(document.querySelector('.state').innerText) && document.querySelector('.timeline').innerText.includes('Warned, expires in')`)
	b.click("label", "UTC")
	b.feed(coll, "DocumentExpiring")
	b.sees("document, 5 min")

	b.visit("collections/" + coll.Name())
	b.until(`document.querySelector('input[aria-label="Warn before"]')?.value === '10'`)
	eval[any](b, `(e => { e.value = ''; e.dispatchEvent(new Event('input', {bubbles: true})); })(document.querySelector('input[aria-label="Warn before"]'))`)
	warns(false)
	kept, err := lapse.Collection(t.Context(), coll.Name())
	if err != nil || !maps.Equal(kept.Info().Metadata, coll.Info().Metadata) {
		t.Errorf("the panel leaves %v of %v (%v)", kept.Info().Metadata, coll.Info().Metadata, err)
	}
}

// TestStaleETagRefused: a change is refused if the displayed version is outdated.
func TestStaleETagRefused(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	put(t, coll, "a", `{"n":1}`)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.expect("412")
	// The pages notice a change, unless their status is older than a click.
	const stale = `void (window.real = fetch, window.fetch = (url, init) => /api.(status|query)/.test(url) ? new Promise(() => {}) : real(url, init))`
	b.visit("collections/" + coll.Name())
	b.click("input[value=each]", "")
	b.until(`!document.querySelector('button.primary').disabled`)
	eval[any](b, stale)
	if _, err := lapse.ChangeCollection(t.Context(), coll.Name(), client.DefaultTTL(time.Hour), client.PreviousImages(false)); err != nil {
		t.Fatal(err)
	}
	b.click("button.primary", "Save")
	b.sees("Somebody was faster")
	b.sees("Time to live: was Off, is now On: 1 h, yours is On (no default)")
	b.sees("Last content in events: was yes, is now no")
	b.click("button.primary", "Save mine over it")
	b.until(`document.querySelector('.summary').innerText.includes('On (no default)') && !document.body.innerText.includes('yours is')`)
	if now, err := lapse.Collection(t.Context(), coll.Name()); err != nil || now.Info().DefaultTTL != client.NoDefault || now.Info().PreviousImages {
		t.Errorf("%+v, %v", now.Info(), err)
	}
	eval[any](b, `void (window.fetch = real)`)

	b.visit("documents/" + coll.Name() + "/a")
	b.sees(`"n": 1`)
	eval[any](b, stale)
	put(t, coll, "a", `{"n":4}`)
	b.click("button", "Never")
	b.sees("Somebody was faster")
	eval[any](b, `void (window.fetch = real)`)
	if item, err := client.Get[json.RawMessage](t.Context(), coll, "a"); err != nil || !strings.Contains(string(item.Value), `"n":4`) {
		t.Errorf("%s, %v", item.Value, err)
	}
}

// TestDrafts: a draft survives a 412, Back and a reload, stands beside the other change, and is
// saved over it; the page notices changes and says what it did.
func TestDrafts(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	put(t, coll, "a", `{"n":1}`)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.expect("412")
	b.expect("404")
	page := "documents/" + coll.Name() + "/a"
	has := func(want string) {
		t.Helper()
		item, err := client.Get[json.RawMessage](t.Context(), coll, "a")
		if err != nil || !strings.Contains(string(item.Value), want) {
			t.Errorf("%s, %v, want %s", item.Value, err, want)
		}
	}
	b.visit(page)
	b.sees(`"n": 1`)
	put(t, coll, "a", `{"n":2}`)
	b.sees(`"n": 2`)
	b.click("button", "Edit")
	b.fill("div#content", `{"n":2,"mine":true}`)
	b.click("button.primary", "Save")
	b.until(`/^Saved, version \d+$/.test(document.querySelector('main p[role=status]').innerText) && document.activeElement.innerText === 'Edit'`)
	has(`"mine":true`)

	b.click("button", "Edit")
	b.fill("div#content", `{"n":3,"mine":true}`)
	put(t, coll, "a", `{"n":2,"mine":true,"theirs":true}`)
	conflict := func() {
		t.Helper()
		b.until(`![...document.querySelector('.beside .diff').querySelectorAll('.added')].some(e => e.innerText.includes('mine')) && document.querySelectorAll('.beside .diff')[1].innerText.includes('"theirs": true') && document.querySelector('#content').shadowRoot.querySelector('.cm-content').innerText === '{"n":3,"mine":true}'`)
	}
	b.click("button.primary", "Save")
	conflict()
	b.visit("collections")
	eval[any](b, `history.back()`)
	conflict()
	b.load(page)
	conflict()
	b.click("button.primary", "Save mine over it")
	b.until(`document.querySelector('#content') === null`)
	has(`"n":3,"mine":true`)

	// Changes that do not touch are merged; where both changed a member, one is chosen.
	b.click("button", "Edit")
	b.fill("div#content", `{"mine":true,"n":4,"o":{"a":1}}`)
	put(t, coll, "a", `{"n":9,"mine":true,"o":{"b":[]}}`)
	b.until(`[...document.querySelectorAll('.clash')].map(e => e.innerText).join() === 'Both changed /n:mine 4theirs 9'.replace(/mine|theirs/g, '\n$&')`)
	b.until(`[...document.querySelectorAll('button')].find(e => e.innerText.startsWith('Merge')).disabled`)
	b.click(".clash label", "mine")
	b.click("button", "Merge both")
	b.until(`document.querySelector('.clash') === null`)
	b.click("button.primary", "Save")
	b.until(`document.querySelector('#content') === null`)
	has(`"n":4,"mine":true,"o":{"b":[],"a":1}`)

	b.click("button", "Edit")
	b.fill("div#content", `{"n":5}`)
	check(t, client.Delete(t.Context(), coll, "a"))
	b.click("button", "Create it again")
	b.until(`document.querySelector('.state .badge')?.innerText === 'never expires'`)
	has(`"n":5`)

	b.click("button", "Duplicate")
	b.until(`document.querySelector('form.new input').value === 'a-copy'`)
	b.click("form.new button.primary", "Create")
	b.until(`document.querySelector('h1').innerText === 'a-copy'`)
}

// TestDocumentPage follows a document: a countdown to its expiry, its last content,
// restored, held without a countdown, released, and deleted with its collection.
func TestDocumentPage(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.TTLPerDocument())
	put(t, coll, "a", `{"n":1}`)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.expect("404")
	b.visit("documents/" + coll.Name() + "/a")
	badge := func(text string) {
		t.Helper()
		b.until(`document.querySelector('.state .badge')?.innerText === $?`, text)
	}
	ttl := func(seconds string) {
		t.Helper()
		b.click(".title .menu summary", "")
		b.duration("Time to live", seconds, "seconds")
		b.click("button", "Set")
	}
	timeline := func(text string) {
		t.Helper()
		b.until(`document.querySelector('.timeline').innerText.includes($?)`, text)
	}
	badge("never expires")
	ttl("59")
	const left = `Number(/expires in (\d+) s/.exec(document.querySelector('.countdown')?.innerText)[1])`
	b.until(left + ` < (window.first ??= ` + left + `)`)
	b.sees("59 s by its own ttl")
	b.click("button", "1 hour more")
	b.until(`/^expires in (1 h|59 min)/.test(document.querySelector('.countdown').innerText)`)
	b.click("button", "Touch")
	timeline("Touched")
	ttl("2")
	badge("expired")
	timeline("Expired, by the document’s ttl of 2 s")
	b.until(`document.querySelector('.timeline pre').innerText.includes('"n": 1')`)
	b.click("summary", "Changes")
	b.until(`[...document.querySelectorAll('.diff .added')].some(e => e.innerText.includes('"ttl": 2'))`)
	eval[any](b, `void [...document.querySelectorAll('summary')].filter(e => e.innerText === 'Content').at(-1).click()`)
	b.until(`document.querySelector('.timeline li:last-child button') !== null`)
	eval[any](b, `document.querySelector('.timeline li:last-child button').click()`)
	badge("never expires")
	timeline("Created, restored from version")
	if item, err := client.Get[json.RawMessage](t.Context(), coll, "a"); err != nil || strings.Contains(string(item.Value), "ttl") {
		t.Errorf("%s, %v", item.Value, err)
	}

	// A hold applies to the document, whatever its version.
	put(t, coll, "a", `{"n":2}`)
	b.click("summary", "Hold")
	b.fill(".reason", "case <4711>")
	b.click("button", "Hold")
	badge("held")
	timeline("Held: case <4711>")
	b.until(`document.querySelector('.state').innerText.includes('case <4711>')`)
	b.until(`[...document.querySelectorAll('button')].find(e => e.textContent === 'Delete').matches(':disabled')`)
	ttl("1")
	b.sees("if released, it expires at once")
	if eval[bool](b, `document.querySelector('.countdown') !== null`) {
		t.Error("a held document has a countdown")
	}
	held, err := client.Get[json.RawMessage](t.Context(), coll, "a")
	if err != nil || !held.Held || held.Reason != "case <4711>" {
		t.Fatalf("%+v, %v", held, err)
	}
	b.visit("collections/" + coll.Name())
	b.sees("1 document is held: release it first.")
	b.click(".summary a", "1 held")
	b.until(`document.querySelector('td.id')?.innerText === 'a'`)

	b.visit("documents/" + coll.Name() + "/a")
	b.click("summary", "Release")
	b.click("button", "Release")
	b.sees("Release it and let it expire?")
	b.click("button", "Yes")
	badge("expired")
	b.click("button", "Restore")
	b.until(`document.querySelectorAll('.timeline li').length > 0 && document.querySelector('.timeline').innerText.match(/restored from version/g).length === 2`)
	badge("expired")

	put(t, coll, "a", `{"n":3}`)
	check(t, lapse.DeleteCollection(t.Context(), coll.Name()))
	b.load("documents/" + coll.Name() + "/a")
	badge("deleted with its collection")
	b.until(`document.querySelector('.timeline li').innerText.startsWith('Deleted with its collection')`)
	if eval[bool](b, `document.querySelector('main button') !== null || document.querySelector('main .fault:not([hidden])') !== null`) {
		t.Errorf("there is nothing to restore it into: %s", b.text())
	}
	if _, err := lapse.CreateCollection(t.Context(), coll.Name()); err != nil {
		t.Fatal(err)
	}
	b.load("documents/" + coll.Name() + "/a")
	b.click("button", "Restore")
	badge("never expires")
}

// TestDocumentActions: a double click is one change, focus stays where something happened, any
// two versions of a long history can be compared, and an id without a document offers one.
func TestDocumentActions(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(time.Hour))
	batch := coll.Batch()
	for i := range 120 {
		batch.Upsert("a", map[string]int{"n": i})
	}
	write(t, batch)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.expect("404")
	b.visit("documents/" + coll.Name() + "/a")
	b.sees(`"n": 119`)
	b.until(`(touch => { touch.click(); touch.click(); return true; })([...document.querySelectorAll('button')].find(e => e.textContent.startsWith('Touch')))`)
	b.until(`/^Renewed, version \d+$/.test(document.querySelector('main p[role=status]').innerText) && [...document.querySelectorAll('main .row button')].every(e => !e.matches(':disabled') || e.textContent === 'Set')`)
	if n := eval[int](b, `document.querySelector('.timeline').innerText.match(/Touched/g).length`); n != 1 || eval[bool](b, `document.querySelector('.fault:not([hidden])') !== null`) {
		t.Errorf("%d touches: %s", n, b.text())
	}
	b.click("button", "Older")
	b.until(`document.querySelectorAll('.timeline li').length >= 100`)
	b.click("button", "Older")
	b.until(`document.querySelectorAll('.timeline li').length === 121 && ![...document.querySelectorAll('button')].some(e => e.innerText === 'Older')`)
	b.click("summary", "Compare")
	b.until(`/- +"n": 0\n.*\+ +"n": 119/.test(document.querySelector('.diff').innerText)`)
	b.until(`(s => { s.selectedIndex = 60; s.dispatchEvent(new Event('change')); return true; })(document.querySelector('.document select'))`)
	b.until(`/- +"n": 59\n.*\+ +"n": 119/.test(document.querySelector('.diff').innerText)`)
	b.click("summary", "Extend")
	b.duration("Time to live", "1.5", "seconds")
	b.sees("Use whole seconds from 1 to 2,147,483,647.")
	b.click("button", "Edit")
	b.fill("div#content", `{"id":"b"}`)
	b.sees(`The content has the id "b"`)
	b.until(`[...document.querySelectorAll('button')].find(e => e.textContent === 'Save').disabled`)
	b.click("button", "Cancel")
	b.click("button", "Delete")
	b.click("button", "Yes")
	b.until(`document.querySelector('.state .badge')?.innerText === 'deleted' && document.activeElement.innerText === 'Deleted'`)

	b.visit("documents/" + coll.Name() + "/b")
	b.sees("There is no document with this id")
	b.until(`[...document.querySelectorAll('main a')].some(a => a.hash.startsWith('#/feed?') && a.hash.endsWith('id=b'))`)
	b.click("button", "Create it")
	b.until(`document.querySelector('form.new input').value === 'b'`)
	b.visit("documents/none/b")
	b.sees("There is no collection none.")
	eval[any](b, `void (window.fetch = () => new Promise(() => {}))`)
	for _, page := range []string{"documents/" + coll.Name() + "/b", "collections/" + coll.Name()} {
		b.visit(page)
		b.sees("Loading…")
	}
}

// TestContentNotInterpreted: the pages interpret nothing in an id or a document, and
// numbers stay exact.
func TestContentNotInterpreted(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	b := openConsole(t, lapse, console.Options{Write: true})
	const markup = `<img src=x onerror="document.title='broken'">'&amp;` + "\u202e%2F/.."
	put(t, coll, markup, `{"big":1e400,"exact":12345678901234567890,"s":"</pre><script>document.title='broken'</script>","__proto__":{"a":1}}`)
	wide := map[string]int{}
	for i := range 10000 {
		wide[fmt.Sprintf("m%04d", i)] = i
	}
	if _, err := client.Upsert(t.Context(), coll, "wide", wide); err != nil {
		t.Fatal(err)
	}
	put(t, coll, "large", `{"a":"`+strings.Repeat("<b>", 2<<20/3-10)+`"}`)

	b.visit("documents/" + coll.Name())
	b.until(`[...document.querySelectorAll('td.id')].some(td => td.innerText === $?)`, markup)
	b.click("td.id a", markup)
	b.until(`document.querySelector('h1').innerText === $?`, markup)
	b.sees(`"big": 1e400`)
	b.sees(`"exact": 12345678901234567890`)
	b.sees(`"__proto__": {`)
	b.click("button", "Edit")
	b.fill("div#content", `{"big":-1e400,"exact":12345678901234567890}`)
	b.click("button.primary", "Save")
	b.sees(`"big": -1e400`)
	item, err := client.Get[json.RawMessage](t.Context(), coll, markup)
	if err != nil || !strings.Contains(string(item.Value), `"big":-1e400,"exact":12345678901234567890`) {
		t.Errorf("%s, %v", item.Value, err)
	}
	b.visit("documents/" + coll.Name() + "/large")
	b.sees("Show all")
	b.visit("documents/" + coll.Name() + "/wide")
	b.click("button", "Show all")
	b.sees(`"m9999": 9999`)
	b.feed(coll)
	b.until(`[...document.querySelectorAll('td.id')].some(td => td.innerText === $?)`, markup)
	if title := eval[string](b, "document.title"); title != "Feed · main · lapse" {
		t.Errorf("the title is %q", title)
	}
}

// TestQueries: the page has cursor paging, the plan, a count, and errors at their fields.
func TestQueries(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.IncludePaths("/n"))
	batch := coll.Batch()
	for i := range 60 {
		batch.Upsert(fmt.Sprintf("d%02d", i), map[string]int{"n": i})
	}
	write(t, batch)
	b := openConsole(t, lapse, console.Options{})
	b.expect("400")
	b.visit("documents/" + coll.Name())
	b.click("button", "CEL")
	b.fill("div#where", "doc.n >= params.least")
	b.fill("#params", `{"least":10}`)
	b.fill("#orderBy", "/n desc")
	// What did not run yet is not what the buttons act on.
	b.until(`document.querySelector('.results').inert`)
	b.click("label.check input", "")
	b.click("button.primary", "Run")
	b.until(`document.querySelector('td.id')?.innerText === 'd59'`)
	b.sees("Index /n")
	b.click("button", "Next")
	b.sees("page 2")
	b.until(`document.querySelector('td.id').innerText === 'd34'`)
	b.click("button", "Previous")
	b.until(`document.querySelector('td.id').innerText === 'd59'`)
	b.click("button", "Count")
	b.sees("50 of 60 documents")
	b.click("th button", "id")
	b.until(`document.querySelector('td.id').innerText === 'd10'`)

	// Without CEL: comparisons, each in a line, which are changed and removed one by one.
	shows := func(chips, ids string) {
		t.Helper()
		b.until(`[...document.querySelectorAll('.chip')].map(e => e.innerText.replace('×', '').trim()).join() + ': ' + [...document.querySelectorAll('td.id')].map(td => td.innerText).join() === $?`, chips+": "+ids)
	}
	b.visit("collections")
	b.visit("documents/" + coll.Name())
	b.fill("#filter", "id ^= d0\r")
	shows("id begins with d0", "d00,d01,d02,d03,d04,d05,d06,d07,d08,d09")
	b.fill("#filter", "n = 7\r")
	shows("id begins with d0,n = 7", "d07")
	b.fill("#filter", "n=8\r") // the same path again: another value
	shows("id begins with d0,n = 8", "d08")
	b.click(".chip button", "n = 8")
	b.until(`document.querySelector('#filter').value === 'n = 8' && document.querySelector('.results').inert`)
	b.fill("#filter", "n > 8\r")
	shows("id begins with d0,n > 8", "d09")
	b.click(`button[aria-label="Remove id begins with d0"]`, "")
	b.until(`document.querySelector('td.id').innerText === 'd09' && document.querySelectorAll('td.id').length === 25`)
	b.fill("#filter", "usr = ann\r")
	b.sees("No document that was shown has “usr”")
	b.fill("#filter", "ann\r")
	b.sees("Write a comparison, such as user = ann")
	b.visit("documents/" + coll.Name() + "?params=" + url.QueryEscape(`{"least":10}`))
	for field, wrong := range map[string]string{"where": "doc.n >", "params": "5", "orderBy": "n", "select": "n"} {
		b.fill("#"+field, wrong)
		b.click("button.primary", "Run")
		b.until(`document.querySelector($?).innerText !== '' && (e => e.shadowRoot?.querySelector('.cm-content') ?? e)(document.querySelector($?)).getAttribute('aria-invalid') === 'true'`, "#"+field+"-fault", "#"+field)
		b.fill("#"+field, map[string]string{"params": `{"least":10}`}[field]+" ")
	}
}

// TestNamedQueries: queries that were run, and those with a name, are there after a reload.
func TestNamedQueries(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	put(t, coll, "a", `{"n":1}`)
	b := openConsole(t, lapse, console.Options{})
	page := "documents/" + coll.Name()
	b.visit(page + "?where=doc.n%3E5")
	b.sees("No document matches.")
	b.click("summary", "Recent and named queries")
	b.fill("details form input", "Large")
	b.click("details button", "Keep")
	b.sees("Large: where doc.n>5")
	b.visit(page + "?idPrefix=a&limit=100")
	b.sees(`{"n":1`)
	b.load(page)
	b.click("button", "CEL")
	b.click("summary", "Recent and named queries")
	b.sees("Large: where doc.n>5")
	b.sees("idPrefix a, limit 100")
	b.click("details button", "Forget")
	b.until(`document.querySelectorAll('details li').length === 1`)
	b.click("details a", "idPrefix")
	b.arrives("?idPrefix=a&limit=100")
}

// TestMany: a change of all that match, or of a selection, is counted first, asks, and applies
// to the versions that were counted; a download has what matches.
func TestMany(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.TTLPerDocument())
	batch := coll.Batch()
	for i := range 1300 {
		batch.Upsert(fmt.Sprintf("d%04d", i), map[string]int{"n": i})
		if batch.Len() == client.MaxBatch {
			write(t, batch)
			batch = coll.Batch()
		}
	}
	write(t, batch)
	b := openConsole(t, lapse, console.Options{Write: true})
	ids := func(want string) {
		t.Helper()
		b.until(`[...document.querySelectorAll('td.id')].map(td => td.innerText.trim()).join().startsWith($?)`, want)
	}
	status := func(want string) {
		t.Helper()
		b.until(`document.querySelector('.many [role=status]').innerText === $?`, want)
	}
	b.visit("documents/" + coll.Name() + "?where=doc.n%3E%3D10")
	ids("d0010,d0011")
	b.pick(`select[aria-label=Change]`, "delete")
	b.sees("1,290 documents, all that match doc.n>=10. Their last content stays in the log.")
	put(t, coll, "d0500", `{"n":500,"changed":true}`)
	check(t, client.Hold(t.Context(), coll, "d0600", ""))
	b.until(`document.querySelector('.many button.danger').disabled`)
	b.fill(".many .warn input", coll.Name())
	b.click(".many button.danger", "Delete 1,290 documents")
	status("1,288 of 1,290 deleted")
	b.until(`/d0500\tIt has changed since it was counted.\nd0600\t.*held/.test(document.querySelector('.many .scroll').innerText)`)
	ids("d0500,d0600")

	b.visit("documents/" + coll.Name())
	b.click(`input[aria-label="Select d0003"]`, "")
	b.click(`input[aria-label="Select d0004"]`, "")
	b.pick(`select[aria-label=Change]`, "ttl")
	b.duration("Time to live of all", "1.5", "hours")
	b.sees("Each expires 1 h 30 min after its change: 2 of them sooner than now.")
	// A button does not act on what is no longer shown.
	eval[any](b, `(e => { e.value = ''; e.dispatchEvent(new Event('input', {bubbles: true})); })(document.querySelector('input[aria-label="Time to live of all"]'))`)
	b.until(`document.querySelector('.many button.danger') === null`)
	b.duration("Time to live of all", "1.5", "hours")
	b.click(".many button.danger", "Set the time to live of 2 documents")
	status("2 of 2 changed")
	if item, err := client.Get[json.RawMessage](t.Context(), coll, "d0004"); err != nil || !strings.Contains(string(item.Value), `"ttl":5400`) {
		t.Errorf("%+v, %v", item, err)
	}
	eval[any](b, `void (URL.createObjectURL = blob => { blob.text().then(text => { window.saved = text; }); return '#' + location.hash.slice(1); })`)
	b.click(".many button", "Download")
	b.until(`window.saved?.split('\n').length === 13 && window.saved.startsWith('{"id":"d0000","n":0}\n')`)
	b.click(`input[aria-label="Select d0002"]`, "")
	b.click(".many button", "Download selected")
	b.until(`window.saved === '{"id":"d0002","n":2}\n'`)
	b.click(`input[aria-label="Select all of this page"]`, "")
	b.sees("Change 12 selected")

	// A change goes on when its page is left, and the header shows it.
	eval[any](b, `void (window.real = fetch, window.fetch = async (url, init) => { if (String(url).startsWith('api/batch')) await new Promise(done => { window.proceed = done; }); return real(url, init); })`)
	b.pick(`select[aria-label=Change]`, "touch")
	b.click(".many button.danger", "Touch 12 documents")
	b.until(`window.proceed !== undefined`)
	b.visit("collections")
	b.until(`document.querySelector('.working').innerText.startsWith('Touch 12 documents of')`)
	eval[any](b, `window.proceed()`)
	b.until(`document.querySelector('.working') === null`)
}

// TestImport: a file is tried, then imported; refused lines can be downloaded.
func TestImport(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(90*time.Minute))
	var lines strings.Builder
	for i := range 3000 { // more than one request
		fmt.Fprintf(&lines, `{"key":%d,"text":"%s"}`+"\n", i, strings.Repeat("x", 1000))
	}
	lines.WriteString("no JSON\n" + `{"key":"forever","end":null,"n":1e400}`)
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	check(t, os.WriteFile(path, []byte(lines.String()), 0o600))
	b := openConsole(t, lapse, console.Options{Write: true})
	b.visit("documents/" + coll.Name())
	b.click(".tools button", "Import")
	b.do(chromedp.SetUploadFiles(`input[type=file]`, []string{path}))
	b.fill("#import-id", "/key")
	b.fill("#import-expires", "/end")
	b.fill("#import-drop", "/key, /end")
	b.click(".import button", "Dry run")
	b.sees("Nothing is stored yet")
	b.sees("3,002 lines: 3,001 would be created, 0 would be replaced. Within the next hour 0, day 3,000, week 3,000, 30 days 3,000, year 3,000 expire; 1 never does.")
	b.until(`/1 refused:\s+Line\s+Why\s+3001\s+the line is not JSON/.test(document.body.innerText)`)
	if info, err := lapse.Collection(t.Context(), coll.Name()); err != nil || info.Info().Documents != 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	b.click(".import button.primary", "Import")
	b.sees("3,002 lines: 3,001 created, 0 replaced.")
	b.until(`document.querySelectorAll('td.id').length >= 25`)
	if item, err := client.Get[json.RawMessage](t.Context(), coll, "forever"); err != nil || !strings.HasPrefix(string(item.Value), `{"id":"forever","n":1e400,"ttl":-1,`) {
		t.Errorf("%s, %v", item.Value, err)
	}
	eval[any](b, `void (URL.createObjectURL = blob => { blob.text().then(text => { window.saved = text; }); return '#' + location.hash.slice(1); })`)
	b.click(".import button", "Download refused lines")
	b.until(`window.saved === 'no JSON\n'`)

	// Of a file of another kind only the first part is sent.
	path = filepath.Join(t.TempDir(), "poem.txt")
	check(t, os.WriteFile(path, []byte(strings.Repeat("word\n", 700_000)), 0o600))
	b.do(chromedp.SetUploadFiles(`input[type=file]`, []string{path}))
	b.click(".import button.primary", "Import")
	b.sees("“poem.txt” seems to be a TXT that is not NDJSON")
	if n := eval[int](b, `performance.getEntriesByType('resource').filter(e => e.name.includes('api/import')).length`); n != 3+3+1 {
		t.Errorf("%d parts were sent", n)
	}
}

// TestRestoreAll: what expired or was deleted, and is shown, is restored at once; what lives
// again is not.
func TestRestoreAll(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(time.Hour))
	for i := range 3 {
		id := fmt.Sprint("d", i)
		put(t, coll, id, fmt.Sprintf(`{"n":%d}`, i))
		check(t, client.Delete(t.Context(), coll, id))
	}
	put(t, coll, "d0", `{"again":true}`)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.feed(coll, "DocumentDeleted")
	b.until(`document.querySelectorAll('.feed tbody tr').length === 3`)
	b.click("button", "Restore all …")
	b.click("button.primary", "Restore 3 documents")
	b.sees("2 of 3 restored")
	b.until(`/1 refused:\s+id\s+Why\s+d0\s+It lives already./.test(document.body.innerText)`)
	if item, err := client.Get[json.RawMessage](t.Context(), coll, "d2"); err != nil || !strings.Contains(string(item.Value), `"n":2`) {
		t.Errorf("%s, %v", item.Value, err)
	}
}

// TestLargeDocumentsListed: the list reads on where a reply ends early, and shows the
// beginning of large documents and the values of chosen paths.
func TestLargeDocumentsListed(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(time.Hour))
	for i := range 8 {
		put(t, coll, fmt.Sprintf("d%d", i), fmt.Sprintf(`{"n":%d,"a":{"b":"x%[1]d"},"text":"%s"}`, i, strings.Repeat("x", 1<<20)))
	}
	b := openConsole(t, lapse, console.Options{})
	b.visit("documents/" + coll.Name())
	b.until(`[...document.querySelectorAll('td.id')].map(td => td.innerText).join() === 'd0,d1,d2,d3,d4,d5,d6,d7'`)
	b.sees("1.0 MiB")
	b.fill("#select", "/a/b, /n")
	b.click("button.primary", "Run")
	b.until(`document.querySelector('thead').innerText.includes('/a/b') && document.querySelector('tbody').rows[3].cells[4].innerText === '"x3"'`)
	b.click("tbody a", "d3")
	b.sees("Show all")
}

// TestAddressRestores: Back and Reload restore a query and its page, the span of a forecast,
// and the page of collections.
func TestAddressRestores(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(time.Hour))
	batch := coll.Batch()
	for i := range 60 {
		batch.Upsert(fmt.Sprintf("d%02d", i), map[string]int{"n": i})
	}
	write(t, batch)
	b := openConsole(t, lapse, console.Options{})
	b.visit("documents/" + coll.Name())
	b.click("button", "CEL")
	b.fill("div#where", "doc.n >= params.least")
	b.fill("#params", `{"least":5}`)
	b.fill("#orderBy", "/n desc")
	b.click("button.primary", "Run")
	b.until(`document.querySelector('td.id')?.innerText === 'd59'`)
	b.click("button", "Next")
	b.until(`document.querySelector('td.id')?.innerText === 'd34'`)
	restored := func() {
		t.Helper()
		b.until(`document.querySelector('td.id')?.innerText === 'd34' && document.querySelector('#where').shadowRoot.querySelector('.cm-content').innerText === 'doc.n >= params.least' && document.querySelector('.pager').innerText.includes('page 2')`)
	}
	b.click("td.id a", "d20")
	b.until(`document.querySelector('h1').innerText === 'd20'`)
	eval[any](b, `history.back()`)
	restored()
	b.load(strings.TrimPrefix(eval[string](b, `location.hash`), "#/"))
	restored()
	b.click("button", "First page")
	b.until(`document.querySelector('td.id')?.innerText === 'd59'`)

	b.visit("forecast/" + coll.Name())
	b.until(`(document.querySelector('.u-over').dataset.old = 'yes')`)
	b.pick(`select[aria-label="Look ahead"]`, "7d")
	b.until(`location.hash.endsWith('?ahead=7d') && document.querySelector('.u-over').dataset.old === undefined`)
	b.drag(0, 0.1)
	b.until(`/ahead=7d&from=\d+&until=\d+$/.test(location.hash)`)
	b.load(strings.TrimPrefix(eval[string](b, `location.hash`), "#/"))
	b.sees("Zoom out")
	b.click("button", "Zoom out")
	b.until(`location.hash.endsWith('?ahead=7d')`)

	if eval[bool](b, `document.querySelector('.fault:not([hidden])') !== null`) {
		t.Error(b.text())
	}
}

// TestFeedPage: the page takes 10,000 events, keeps at most 1,000 rows, and resumes after
// a pause. Leaving it ends its feed, so more pages than the feed limit work one after
// another.
func TestFeedPage(t *testing.T) {
	lapse, coll := serve(t)
	b := openConsole(t, lapse, console.Options{})
	const feeds = 8 // at once
	for range feeds + 1 {
		b.load("feed?" + url.Values{"collection": {coll.Name()}}.Encode())
		b.sees("live")
	}
	upsert := func(n int) {
		for range n / 1000 {
			batch := coll.Batch()
			for i := range 1000 {
				batch.Upsert(fmt.Sprint(i), map[string]int{"n": i})
			}
			write(t, batch)
		}
	}
	upsert(10000)
	b.sees("10,000 events")
	b.until(`document.querySelectorAll('.feed tbody tr').length === 1000`)
	_, last, err := lapse.LogBounds(t.Context())
	check(t, err)
	b.until(`document.querySelector('.feed tbody .more').innerText === $?`, grouped(int64(last)))
	b.click("button", "Pause")
	b.sees("paused")
	upsert(1000)
	if got := eval[string](b, `document.querySelector('.feed tbody .more').innerText`); got != grouped(int64(last)) {
		t.Errorf("a paused feed went on to %s", got)
	}
	b.click("button", "Resume")
	b.sees("11,000 events")

	// Rows stay where they are while somebody reads them.
	b.click(".feed .more", "")
	b.until(`document.querySelector('.feed td[colspan]') !== null`)
	upsert(1000)
	b.sees("1,000+ new: show")
	b.until(`document.querySelector('.feed tbody tr:nth-of-type(2) td[colspan]') !== null`)
	b.click("button", "new: show")
	b.sees("12,000 events")

	// A tab that nobody sees has no feed.
	hide := func(hidden bool) {
		eval[any](b, `void (Object.defineProperty(document, 'hidden', {configurable: true, value: $?}), document.dispatchEvent(new Event('visibilitychange')))`, hidden)
	}
	hide(true)
	upsert(1000)
	for range 2 * feeds { // of other tabs, which would be refused if this one had its feed
		if got := eval[string](b, `document.querySelector('.counted').innerText`); !strings.HasPrefix(got, "12,000 events") {
			t.Fatalf("a hidden tab went on: %s", got)
		}
	}
	hide(false)
	b.sees("13,000 events")
}

// TestFeedFilters: a filter applies at once and is in the address, a row shows all of its
// event, and a search says that it is over.
func TestFeedFilters(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	put(t, coll, "a", `{"n":1,"text":"`+strings.Repeat("x", 1000)+`"}`)
	if _, err := client.Touch(t.Context(), coll, "a"); err != nil {
		t.Fatal(err)
	}
	put(t, coll, "a", `{"n":2,"text":"`+strings.Repeat("x", 1000)+`"}`)
	put(t, coll, "b", `{}`)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.expect("404")
	rows := func(want string) {
		t.Helper()
		b.until(`[...document.querySelectorAll('.feed tbody tr')].map(tr => tr.cells[1].innerText + ' ' + tr.cells[3].innerText).join() === $?`, want)
	}
	b.visit("feed?from=1")
	rows("Created b,Replaced a,Touched a,Created a,Collection created ")
	b.pick(`select[aria-label=Collection]`, coll.Name())
	eval[any](b, `void [...document.querySelectorAll('.types label')].find(e => e.innerText.includes('Replaced')).click()`)
	rows("Replaced a")
	if hash := eval[string](b, `location.hash`); !strings.Contains(hash, "type=DocumentReplaced") || !strings.Contains(hash, "from=1") {
		t.Error(hash)
	}
	b.click("button.more", "")
	b.until(`[...document.querySelectorAll('.feed .diff .removed')].some(e => e.innerText.includes('"n": 1')) && document.querySelector('.feed pre:last-child').innerText.includes('xxx')`)
	b.click("button.more", "")
	b.until(`document.querySelector('.feed .diff') === null`)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	check(t, client.Delete(t.Context(), coll, "b", client.TraceOf(http.Header{"Traceparent": {"00-" + trace + "-00f067aa0ba902b7-01"}})))
	b.visit("documents/" + coll.Name() + "/b")
	b.until(`document.querySelector('.timeline')?.innerText.includes($?)`, ", trace "+trace)
	b.visit("feed?type=DocumentDeleted&from=1")
	rows("Deleted b")
	b.click("button.more", "")
	b.until(`document.querySelector('.feed td[colspan]')?.innerText.includes($?)`, "trace "+trace)
	b.click(".feed button", "Restore")
	b.sees("Restored")
	b.visit("feed?id=nobody&from=2001-01-01")
	b.sees("nothing up to now")
	put(t, coll, "nobody", `{}`)
	rows("Created nobody")
	b.visit("feed?from=2001-01-01T00:00:00Z&until=2001-02-01T00:00:00Z")
	b.sees("all of the span")
}

// mouse sends mouse events to the bars of a forecast, at a share of their width.
func (b *tab) mouse(share float64, types ...string) {
	b.t.Helper()
	eval[any](b, `void (over => {
		const {left, top, width} = over.getBoundingClientRect();
		for (const type of $?) (type === 'mouseup' ? document : over).dispatchEvent(new MouseEvent(type, {bubbles: true, clientX: left + $? * width, clientY: top + 20, movementX: 50, button: 0, view: window}));
	})(document.querySelector('.u-over'))`, types, share)
}

func (b *tab) drag(from, to float64) {
	b.t.Helper()
	b.mouse(from, "mousedown")
	b.mouse(to-0.005, "mousemove")
	b.mouse(to, "mousemove", "mouseup")
}

// TestForecast: dragging over the bars shows that range in finer bars; a click on a bar,
// or on its number in the table, lists the documents due then, by deadline, page by page.
func TestForecast(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(12*time.Hour))
	batch := coll.Batch()
	for i := range 30 {
		batch.Upsert(fmt.Sprintf("d%02d", i), map[string]any{"n": i}, client.TTL(4*time.Hour-time.Duration(i)*time.Second))
	}
	batch.Upsert("inherits", map[string]any{})
	batch.Upsert("held", map[string]any{})
	batch.Hold("held", "")
	write(t, batch)
	b := openConsole(t, lapse, console.Options{})
	b.expect("400")
	b.visit("forecast/" + coll.Name())
	b.until(`document.querySelector('.u-over') !== null`)
	b.sees("31 come due")
	// A click on an empty bar has no effect.
	b.mouse(0.9, "mousemove", "mousedown", "mouseup", "click")
	if hash := eval[string](b, `location.hash`); !strings.HasPrefix(hash, "#/forecast/") {
		t.Fatalf("a click beside the bars leads to %s", hash)
	}
	b.click("summary", "As a table")
	rows := func(than string, n int) {
		t.Helper()
		b.until(`document.querySelectorAll('tbody tr').length > 0 && document.querySelectorAll('tbody tr').length `+than+` $?`, n)
	}
	wide := eval[int](b, `document.querySelectorAll('tbody tr').length`)
	b.drag(0.02, 0.22)
	rows(">", wide)
	if due := eval[int](b, `[...document.querySelectorAll('tbody td.n')].reduce((sum, td) => sum + Number(td.innerText), 0)`); due != 30 {
		t.Errorf("the zoomed bars have %d documents", due)
	}
	b.click("button", "Zoom out")
	rows("===", wide)
	// In a range of one year, most of the first bar lies before now.
	b.pick(`select[aria-label="Look ahead"]`, "365d")
	rows("!==", wide)
	year := eval[string](b, `document.querySelector('tbody').innerText`)
	b.drag(0, 0.01)
	b.until(`document.querySelector('tbody').innerText !== $? && document.querySelectorAll('tbody tr').length > 1`, year)

	b.load("forecast/" + coll.Name())
	b.until(`document.querySelector('.u-over') !== null`)
	// A bar is one hour wide, so the 30 documents are in one or two bars.
	share := 3.5 / 24
	b.mouse(share, "mousemove")
	if !eval[bool](b, `document.querySelector('.u-over').title.includes(' document')`) {
		share = 4.5 / 24
	}
	b.mouse(share, "mousemove", "mousedown", "mouseup", "click")
	b.until(`/^#.documents.*from=\d+&until=\d+$/.test(location.hash)`)
	b.until(`/^in [34] h/.test(document.querySelector('td .left')?.innerText) && document.querySelector('td.spare').innerText === 'document'`)

	b.visit("documents/" + coll.Name())
	b.pick(`select[aria-label=Show]`, "due")
	b.fill("#until", "yesterday")
	b.click("button.primary", "Run")
	b.until(`document.querySelector('#due-fault').innerText.includes('"24h"')`)
	b.fill("#until", "24h")
	b.click("button.primary", "Run")
	b.until(`document.querySelector('td.id')?.innerText === 'd29'`)
	b.click("button", "Next")
	b.until(`[...document.querySelectorAll('tbody tr')].map(tr => tr.cells[0].innerText + ' ' + tr.cells[2].innerText).join() === 'd04 document,d03 document,d02 document,d01 document,d00 document,inherits collection'`)
	b.click("button", "Count")
	b.sees("31 of 32 documents")
	b.pick(`select[aria-label=Show]`, "held")
	b.until(`[...document.querySelectorAll('td.id')].map(td => td.innerText).join() === 'held' && /^held\s+after release 20/.test(document.querySelector('td.deadline').innerText)`)

	b.visit("forecast/" + coll.Name())
	b.click("summary", "As a table")
	b.click("tbody a", "1")
	b.until(`document.querySelector('td.id') !== null`)
}

// TestFailuresAreShown: what a page could not load is an error where it belongs, beside what
// it could.
func TestFailuresAreShown(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	put(t, coll, "a", `{"n":1}`)
	h := console.New(t.Context(), lapse, console.Options{Write: true})
	var failing atomic.Value
	b := open(t, host(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if op, _ := failing.Load().(string); op != "" && r.URL.Path == "/api/"+op {
			http.Error(w, `{"code":503,"error":"unavailable","message":"no `+op+` now"}`, http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	})))
	b.expect("503")
	for _, test := range []struct{ op, page, beside string }{
		{"collection.get", "collections", coll.Name()},
		{"history", "documents/" + coll.Name() + "/a", `"n": 1`},
		{"collection.list", "documents/" + coll.Name(), "Modified"},
		{"log", "", "Processes"},
	} {
		failing.Store(test.op)
		b.load(test.page)
		b.sees("no " + test.op + " now")
		b.sees(test.beside)
	}
	failing.Store("")
	b.visit("collections/" + coll.Name())
	b.sees("Time to live")
	failing.Store("collection.get")
	b.click("button", "Reload")
	b.sees("no collection.get now")
}

func TestTokenPage(t *testing.T) {
	t.Parallel()
	lapse, _ := serve(t)
	b := openConsole(t, lapse, console.Options{Token: "0123456789abcdef"})
	b.expect("401")
	b.visit("")
	b.sees("needs its token")
	b.fill("input", "not it")
	b.click("button", "Continue")
	b.sees("Wrong token, or it has changed.")
	b.fill("input", "0123456789abcdef")
	b.click("button", "Continue")
	b.sees("Processes")
}

// everyPage writes documents, and returns the fragments of all pages, each with a text of
// the complete page.
func everyPage(t *testing.T, coll *client.Collection) map[string]string {
	t.Helper()
	put(t, coll, "a", `{"n":1}`)
	put(t, coll, "a", `{"text":"`+strings.Repeat("long", 50)+`"}`)
	put(t, coll, "held", `{}`)
	put(t, coll, "deleted", `{}`)
	check(t, errors.Join(client.Hold(t.Context(), coll, "held", strings.Repeat("long", 250)), client.Delete(t.Context(), coll, "deleted")))
	return map[string]string{
		"": "Processes", "collections": coll.Name(), "collections/" + coll.Name(): "at once",
		"forecast/" + coll.Name(): "come due", "documents/" + coll.Name(): "Modified", "documents/" + coll.Name() + "?until=24h": "Set by", "feed": "live",
		"documents/" + coll.Name() + "/a": "History", "documents/" + coll.Name() + "/held": "if released", "documents/" + coll.Name() + "/deleted": "Last content",
	}
}

// audit fails the test for what axe-core finds on the page, light or dark, at the width of a
// phone, which it has to fit, and of a screen.
func (b *tab) audit(where string) {
	b.t.Helper()
	if !eval[bool](b, `'axe' in window`) {
		axe, err := os.ReadFile(filepath.Join("testdata", "axe.min.js")) // of npm's axe-core 4.14.1
		check(b.t, err)
		if sum := fmt.Sprintf("%x", sha256.Sum256(axe)); sum != "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c" {
			b.t.Errorf("the sum of axe-core is %s", sum)
		}
		eval[any](b, string(axe)+`;0`)
	}
	find := func(scheme, rules string) {
		b.scheme(scheme)
		eval[any](b, `delete window.found, axe.run(document, `+rules+`).then(r => { window.found = r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html.slice(0, 200)).join(' ')); }), 0`)
		b.until(`window.found !== undefined`)
		for _, finding := range eval[[]string](b, `window.found`) {
			b.t.Errorf("%s, %s: %s", where, scheme, finding)
		}
	}
	b.width(360)
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
		b.t.Errorf("%s is %d pixels wide", where, wide)
	}
	const all = `{rules: {'target-size': {enabled: true}}}`
	find("light", all)
	b.width(1280)
	find("light", all)
	find("dark", `{runOnly: ['color-contrast']}`) // only colours differ
}

// TestEveryPage: each page works below a prefix, and passes the audit.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(time.Hour))
	mux := http.NewServeMux()
	mux.Handle("/some/prefix/", http.StripPrefix("/some/prefix", console.New(t.Context(), lapse, console.Options{Write: true})))
	s := host(t, mux)
	b := open(t, s+"/some/prefix")
	b.expect("404")
	for fragment, shows := range everyPage(t, coll) {
		b.width(360)
		b.visit(fragment)
		b.until(`document.body.textContent.includes($?)`, shows)
		eval[any](b, `document.querySelectorAll('main details').forEach(details => { details.open = true; })`)
		eval[any](b, `void [...document.querySelectorAll('button')].filter(e => ['CEL', 'Import'].includes(e.innerText)).forEach(e => e.click())`)
		if fragment == "documents/"+coll.Name() {
			b.fill("#filter", "nothing\r")
			b.sees("Write a comparison")
			b.click(`input[aria-label="Select held"]`, "")
		}
		if fragment == "documents/"+coll.Name()+"/a" {
			b.click("button", "Edit")
		}
		b.until(`[...document.querySelectorAll('.editor')].every(e => e.shadowRoot)`)
		b.audit("#/" + fragment)
	}
}

// TestForcedColors: colours of the system show what is chosen.
func TestForcedColors(t *testing.T) {
	t.Parallel()
	lapse, _ := serve(t)
	b := openConsole(t, lapse, console.Options{})
	b.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}}}))
	b.visit("feed?type=DocumentExpired")
	b.click("summary", "View")
	differ := func(chosen, other, style string) {
		t.Helper()
		b.until(`getComputedStyle(document.querySelector($?))[$?] !== getComputedStyle(document.querySelector($?))[$?]`, chosen, style, other, style)
	}
	differ(".type input:checked + span", ".type input:not(:checked) + span", "backgroundColor")
	differ(".switch input:checked + span", ".switch input:not(:checked) + span", "backgroundColor")
	differ("nav a[aria-current]", "nav a:not([aria-current])", "borderBottomColor")
}

// TestStates: a document and a collection pass the audit while something is asked, wrong or
// changed by others.
func TestStates(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(time.Hour))
	put(t, coll, "a", `{"n":1}`)
	put(t, coll, "a", `{"n":2}`)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.expect("404")
	b.visit("documents/" + coll.Name() + "/never")
	b.sees("Create it")
	b.audit("an unknown id")
	b.visit("documents/" + coll.Name() + "/a")
	b.click("button", "Delete")
	eval[any](b, `document.querySelectorAll('main details').forEach(details => { details.open = true; })`)
	b.sees("Delete this document?")
	b.audit("all panels")
	b.click("button", "No")
	b.click("button", "Edit")
	b.fill("div#content", `{"n":x}`)
	b.sees("“x” where a value is expected")
	b.audit("invalid JSON")
	b.fill("div#content", `{"n":3}`)
	put(t, coll, "a", `{"n":4}`)
	b.sees("Both changed")
	b.audit("a conflict")
	b.visit("collections/" + coll.Name())
	b.duration("Time to live", "1", "minutes")
	b.sees("to confirm")
	b.audit("many expiries")
	if _, err := lapse.ChangeCollection(t.Context(), coll.Name(), client.DefaultTTL(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	b.sees("yours is On: 1 min")
	b.audit("settings of others")
}

// TestTheme: a chosen theme wins over that of the system, also in charts and after a reload.
func TestTheme(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(time.Hour))
	put(t, coll, "a", `{}`)
	b := openConsole(t, lapse, console.Options{})
	b.scheme("light")
	shows := func(back, line string) {
		t.Helper()
		b.until(`getComputedStyle(document.body).backgroundColor === $?`, back)
		b.until(`(canvas => { // the colour of the bars, somewhere
			const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
			const [r, g, b] = $?;
			return data.some((_, i) => i % 4 === 0 && data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] === 255);
		})(document.querySelector('canvas'))`, json.RawMessage(line))
	}
	b.visit("forecast/" + coll.Name())
	shows("rgb(255, 255, 255)", "[47, 98, 201]")
	b.click("summary", "View")
	b.click("label", "Dark")
	shows("rgb(20, 23, 28)", "[126, 166, 244]")
	b.load("forecast/" + coll.Name())
	shows("rgb(20, 23, 28)", "[126, 166, 244]")
	b.click("label", "Auto")
	shows("rgb(255, 255, 255)", "[47, 98, 201]")
}

// TestWhoReads: the overview lists the consumers of the log, with what they lack.
func TestWhoReads(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	put(t, coll, "a", `{}`)
	for _, err := range lapse.Changes(t.Context(), client.Durable("billing"), client.FromSeq(1)) {
		check(t, err)
		break
	}
	b := openConsole(t, lapse, console.Options{})
	b.visit("")
	b.until(`/billing\s+0\s+2\s+1\s+20\d\d-/.test(document.querySelector('[aria-label=Consumers]').innerText)`)
	b.until(`document.querySelectorAll('canvas').length === 3`)
}

// TestFirstLoad: the overview takes at most 12 requests of files, beside its icon, and 80 kB;
// what other pages need comes with them.
func TestFirstLoad(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	put(t, coll, "a", `{}`)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.load("")
	b.until(`document.querySelectorAll('canvas').length === 3`)
	loaded := eval[struct {
		Names []string
		Bytes int
	}](b, `(all => ({Names: all.map(e => e.name.slice(location.href.split('#')[0].length)), Bytes: all.reduce((sum, e) => sum + e.transferSize, 0)}))([...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')])`)
	files := slices.DeleteFunc(slices.Clone(loaded.Names), func(name string) bool { return strings.HasPrefix(name, "api/") || name == "icon.svg" })
	t.Logf("%d files, %d requests, %d bytes: %q", len(files), len(loaded.Names), loaded.Bytes, loaded.Names)
	if len(files) > 12 || loaded.Bytes == 0 || loaded.Bytes > 80_000 {
		t.Errorf("%d files, %d bytes: %q", len(files), loaded.Bytes, files)
	}
}

// TestGoTo: an id, living or gone, is one key and a line away; ids that begin with it are
// offered where there is none.
func TestGoTo(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	if _, err := lapse.CreateCollection(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	put(t, coll, "s-1", `{}`)
	check(t, client.Delete(t.Context(), coll, "s-1"))
	put(t, coll, "s-2", `{}`)
	b := openConsole(t, lapse, console.Options{})
	b.expect("404")
	b.visit("")
	b.sees("Processes")
	eval[any](b, `void document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))`)
	b.until(`document.activeElement.type === 'search'`)
	b.do(chromedp.KeyEvent("s-1\r"))
	b.until(`document.querySelector('h1').innerText === 's-1' && document.querySelector('.timeline').innerText.startsWith('Deleted')`)
	b.visit("documents/" + coll.Name())
	b.sees("s-2")
	b.fill(".goto input", "s-\r")
	b.click(".goto a", "begin with it")
	b.until(`location.hash.endsWith('?idPrefix=s-') && [...document.querySelectorAll('td.id')].map(td => td.innerText).join() === 's-2'`)
}

// TestFirstStep: a store without collections shows what to do first.
func TestFirstStep(t *testing.T) {
	t.Parallel()
	lapse := connect(t)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.visit("")
	b.sees("There is nothing here yet.")
	b.fill("main input", "sessions")
	b.click("button.primary", "Create")
	b.sees("There is no document yet.")
	coll, err := lapse.Collection(t.Context(), "sessions")
	if err != nil || coll.Info().DefaultTTL != 1800 {
		t.Fatalf("%+v, %v", coll, err)
	}
	put(t, coll, "first", `{"user":"ann"}`)
	b.until(`document.querySelector('td.id')?.innerText === 'first'`)
}

// TestOldFigures: while lapse does not answer, or hangs, the pages say of when their figures are.
func TestOldFigures(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	put(t, coll, "a", `{}`)
	h := console.New(t.Context(), lapse, console.Options{})
	var gone, hangs atomic.Bool
	b := open(t, host(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case gone.Load():
			panic(http.ErrAbortHandler)
		case hangs.Load():
			<-r.Context().Done()
			return
		}
		h.ServeHTTP(w, r)
	})))
	b.expect("ERR_")
	b.visit("")
	for _, state := range []*atomic.Bool{&gone, &hangs} {
		b.sees("Processes")
		state.Store(true)
		b.sees("What is shown is as of 20")
		b.until(`document.querySelector('.facts.old') !== null && document.querySelector('.state').innerText.startsWith('Not ready')`)
		state.Store(false)
		b.until(`document.querySelector('.old') === null`)
	}
}

// TestResultsFirst: the first row of a page is in its first third, also on a phone.
func TestResultsFirst(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(time.Hour))
	id := "00ae6308-f2b7-bc24-1bcd-26ad764c95f1"
	put(t, coll, id, `{"user":"ann"}`)
	b := openConsole(t, lapse, console.Options{Write: true})
	for page, row := range map[string]string{"documents/" + coll.Name() + "?filter=user+%3D+ann": "td.id a", "feed?from=1": ".feed tbody td"} {
		for width, most := range map[int64]float64{1280: 300, 360: 500} {
			b.width(width)
			b.load(page)
			b.until(`document.querySelector($?) !== null`, row)
			if top := eval[float64](b, `document.querySelector($?).getBoundingClientRect().top + scrollY`, row); top > most {
				t.Errorf("#/%s has its first row at %v of %d pixels", page, top, width)
			}
		}
	}
	// The id is whole.
	b.width(1280)
	b.load("documents/" + coll.Name())
	b.until(`(a => a.innerText === $? && a.getBoundingClientRect().width > 200)(document.querySelector('td.id a'))`, id)
}

// TestReadOnlyPages: a read-only console shows the effect of a change, but has no button
// to make it.
func TestReadOnlyPages(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t, client.DefaultTTL(time.Hour))
	b := openConsole(t, lapse, console.Options{})
	b.expect("404")
	for fragment, shows := range everyPage(t, coll) {
		b.visit(fragment)
		b.sees("read-only")
		b.until(`document.body.textContent.includes($?)`, shows)
		if eval[bool](b, `[...document.querySelectorAll('main button')].some(e => /Save|Delete|Create|Edit|Set|Touch|Hold|Release|Restore/.test(e.innerText))`) {
			t.Errorf("%s offers a change", fragment)
		}
	}
	b.visit("collections/" + coll.Name())
	b.sees("it cannot be saved here")
	b.click("input[value=each]", "")
	b.sees("New, TTL On (no default)")
}

// TestEditor: the editor marks what is wrong while one types, folds, leaves with Tab, and keeps
// a large text up to the last key.
func TestEditor(t *testing.T) {
	t.Parallel()
	lapse, coll := serve(t)
	var large strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&large, `"key%05d":"%s",`, i, strings.Repeat("v", 80))
	}
	put(t, coll, "large", "{"+large.String()+`"end":1}`)
	put(t, coll, "line", `{"a":"`+strings.Repeat("word ", 2<<20/5-20)+`"}`)
	b := openConsole(t, lapse, console.Options{Write: true})
	b.visit("documents/" + coll.Name() + "/large")
	b.click("button", "Edit")
	inside := func(script string, args ...any) {
		t.Helper()
		b.until(`(root => `+script+`)(document.querySelector('#content').shadowRoot)`, args...)
	}
	inside(`root.querySelector('.cm-content').innerText.includes('key00000')`)
	eval[any](b, `document.querySelector('#content').shadowRoot.querySelector('.cm-content').focus()`)
	b.do(chromedp.KeyEvent("{x")) // at the beginning
	inside(`getComputedStyle(root.querySelector('.cm-lint-marker-error'), '::before').content === '"●"' && root.querySelector('.cm-content').getAttribute('aria-invalid') === 'true'`)
	b.sees("Line 1, column 2: “x” where a name in quotes is expected.")
	b.until(`[...document.querySelectorAll('button')].find(e => e.innerText === 'Save').disabled`)
	type50 := func(what string) {
		eval[any](b, `void (window.slow = [], new PerformanceObserver(list => slow.push(...list.getEntries().filter(e => e.name === 'keydown').map(e => e.duration))).observe({type: 'event', durationThreshold: 16}))`)
		for range 50 {
			b.do(chromedp.KeyEvent("y"))
		}
		t.Logf("of 50 keys in %s these took 16 ms or more until they were drawn: %v", what, eval[[]float64](b, `slow`))
	}
	type50("20,000 lines")
	b.load("documents/" + coll.Name() + "/large")
	inside(`root.querySelector('.cm-content').innerText.startsWith('{x' + 'y'.repeat(50) + '{')`)
	b.click("button", "Cancel")

	b.visit("documents/" + coll.Name() + "/line")
	b.click("button", "Edit")
	inside(`root.querySelector('.cm-content').innerText.includes('"line"')`)
	eval[any](b, `document.querySelector('#content').shadowRoot.querySelector('.cm-content').focus()`)
	type50("a line of 2 MB")
	b.click("button", "Cancel")

	b.visit("documents/" + coll.Name() + "?new=true")
	b.fill("div#content", `{"a": {"b": 1}}`)
	b.do(chromedp.KeyEvent("\t"))
	b.until(`document.activeElement.innerText === 'Create'`)
}
