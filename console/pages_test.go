package console_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
		if err != nil {
			t.Fatal(err)
		}
		if forecast.AtOnce == n {
			return forecast
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestTTLPanel: the page shows the effect of a new TTL, asks for the collection's name,
// and saving has that effect.
func TestTTLPanel(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	batch := coll.Batch()
	for i := range 1000 {
		body := map[string]any{"n": i}
		if i%4 == 0 {
			body["ttl"] = -1
		}
		batch.Upsert(fmt.Sprint(i), body)
	}
	run(t, batch)
	s := start(t, "", console.Options{Write: true})
	b := open(t, s, "")
	b.visit("collections/" + coll.Name())
	b.sees("0 of 1,000 documents expire at once; 1,000 never do.")
	b.click("input[value=each]", "")
	b.sees("New, TTL On (no default)")
	b.pick(`select[aria-label="Time to live: unit"]`, "seconds")
	b.fill(`input[aria-label="Time to live"]`, "1")
	forecast := dueAtOnce(t, coll, 750)
	b.pick("label.inline select", "7d") // triggers a new count
	b.sees("750 documents will expire at once.")
	b.sees(fmt.Sprintf("%s of %s documents expire at once; %s never do.", grouped(forecast.AtOnce), grouped(forecast.Documents), grouped(forecast.Never)))
	b.until(`document.querySelector('button.primary').disabled`)
	b.fill(".warn input", "not it")
	b.until(`document.querySelector('button.primary').disabled`)
	b.fill(".warn input", coll.Name())
	b.click("button.primary", "Save")
	b.until(`document.querySelector('.summary').innerText.includes('TTL On: 1 s')`)
	if changed, err := lapse.Collection(t.Context(), coll.Name()); err != nil || changed.Info().DefaultTTL != 1 || !changed.Info().PreviousImages {
		t.Fatalf("%+v, %v", changed.Info(), err)
	}
	// The expiries are in the feed.
	b.visit("feed?" + url.Values{"collection": {coll.Name()}, "type": {"DocumentExpired"}}.Encode())
	b.pick("form select", "sequence")
	b.fill("form input[required]", "1")
	// The browser draws late: events count once their rows are there.
	eval[any](b, `void (window.requestAnimationFrame = draw => setTimeout(draw, 1500))`)
	b.click("button.primary", "Start")
	b.sees("750 events")
	if rows := eval[int](b, `document.querySelectorAll('td.expired').length`); rows != 750 {
		t.Errorf("%d rows", rows)
	}
}

// TestWarningTime: the panel sets and removes the warning time and refuses an invalid
// one; the warnings appear in the history and the feed.
func TestWarningTime(t *testing.T) {
	t.Parallel()
	coll := collection(t, client.TTLPerDocument())
	s := start(t, "", console.Options{Write: true})
	b := open(t, s, "")
	b.visit("collections/" + coll.Name())
	b.fill(`input[aria-label="Warn before"]`, "1.5")
	b.pick(`select[aria-label="Warn before: unit"]`, "seconds")
	b.sees("Warn before: use whole seconds from 1 to 2,147,483,647.")
	b.until(`document.querySelector('button.primary').disabled`)
	b.fill(`input[aria-label="Warn before"]`, "10")
	b.pick(`select[aria-label="Warn before: unit"]`, "minutes")
	b.click("button.primary", "Save")
	warns := func(want bool) {
		t.Helper()
		for {
			reply, err := lapse.Do(t.Context(), "collection.get", coll.Name(), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(reply.Body), `"warnBefore":600`) == want {
				return
			}
			if text := eval[string](b, `document.querySelector('form .fault:not([hidden])')?.innerText ?? ''`); text != "" {
				t.Fatalf("the page says %q, the collection is %s", text, reply.Body)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	warns(true)
	put(t, coll, "a", `{"ttl":300}`)
	b.visit("documents/" + coll.Name() + "/a")
	b.until(`/expires in (5 min|4 min)/.test(document.querySelector('.countdown')?.innerText)`)
	for !eval[bool](b, `document.querySelector('.timeline').innerText.includes('Warned, expires at')`) {
		b.click("button", "Load again")
	}
	b.visit("feed?" + url.Values{"collection": {coll.Name()}, "type": {"DocumentExpiring"}}.Encode())
	b.pick("form select", "sequence")
	b.fill("form input[required]", "1")
	b.click("button.primary", "Start")
	b.sees("document ttl 5 min")

	b.visit("collections/" + coll.Name())
	b.until(`document.querySelector('input[aria-label="Warn before"]')?.value === '10'`)
	eval[any](b, `(e => { e.value = ''; e.dispatchEvent(new Event('input', {bubbles: true})); })(document.querySelector('input[aria-label="Warn before"]'))`)
	b.click("button.primary", "Save")
	warns(false)
}

// TestDueSincePreview: if documents come due between the forecast and the change, the
// page still asks for the collection's name.
func TestDueSincePreview(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	s := start(t, "", console.Options{Write: true})
	b := open(t, s, "")
	b.visit("collections/" + coll.Name())
	b.pick(`select[aria-label="Time to live: unit"]`, "seconds")
	b.fill(`input[aria-label="Time to live"]`, "1")
	b.sees("New, TTL On: 1 s")
	b.until(`document.querySelector('.sentence').innerText.startsWith('0 of 0 ') && !document.querySelector('button.primary').disabled`)
	put(t, coll, "a", "{}")
	dueAtOnce(t, coll, 1)
	b.click("button.primary", "Save")
	b.sees("1 document will expire at once.")
	if now, err := lapse.Collection(t.Context(), coll.Name()); err != nil || now.Info().DefaultTTL != client.TTLOff {
		t.Errorf("%+v, %v", now.Info(), err)
	}
}

// TestStaleETagRefused: a change is refused if the displayed version is outdated.
func TestStaleETagRefused(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, "a", `{"n":1}`)
	s := start(t, "", console.Options{Write: true})
	b := open(t, s, "")
	b.expect("412")
	b.visit("collections/" + coll.Name())
	b.click("input[value=each]", "")
	b.sees("New, TTL On (no default)")
	if _, err := lapse.ChangeCollection(t.Context(), coll.Name(), client.PreviousImages(false)); err != nil {
		t.Fatal(err)
	}
	b.click("button.primary", "Save")
	b.sees("Somebody was faster")
	b.click("button", "Load again")
	b.until(`!document.querySelector('input[type=checkbox]').checked`)

	b.visit("documents/" + coll.Name() + "/a")
	b.click("button", "Edit")
	b.fill("textarea", `{"n":2}`)
	put(t, coll, "a", `{"n":3}`)
	b.click("button.primary", "Save")
	b.sees("Somebody was faster")
	if item, err := client.Get[json.RawMessage](t.Context(), coll, "a"); err != nil || !strings.Contains(string(item.Value), `"n":3`) {
		t.Errorf("%s, %v", item.Value, err)
	}
}

// TestCountdown: a document's page counts down to zero, then shows its expiry and its
// last content.
func TestCountdown(t *testing.T) {
	t.Parallel()
	coll := collection(t, client.TTLPerDocument())
	put(t, coll, "a", `{"n":1}`)
	s := start(t, "", console.Options{Write: true})
	b := open(t, s, "")
	b.expect("404")
	b.visit("documents/" + coll.Name() + "/a")
	b.sees("never expires")
	set := func(seconds string) {
		b.pick(`select[aria-label="Time to live: unit"]`, "seconds")
		b.fill(`input[aria-label="Time to live"]`, seconds)
		b.click("button", "Set")
	}
	const left = `Number(/expires in (\d+) s/.exec(document.querySelector('.countdown')?.innerText)[1])`
	set("59")
	b.until(left + ` < (window.first ??= ` + left + `)`)
	set("2")
	b.until(`document.querySelector('.badge').innerText === 'expired'`)
	b.until(`document.querySelector('.timeline').innerText.includes('Expired, by the document’s ttl of 2 s')`)
	b.until(`document.querySelector('.timeline pre').innerText.includes('"n": 1')`)
	b.click("summary", "Changes")
	b.until(`[...document.querySelectorAll('.diff .added')].some(e => e.innerText.includes('"ttl": 2'))`)
}

// TestContentNotInterpreted: the pages interpret nothing in an id or a document, and
// numbers stay exact.
func TestContentNotInterpreted(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	s := start(t, "", console.Options{Write: true})
	b := open(t, s, "")
	const markup = `<img src=x onerror="document.title='broken'">'&amp;` + "\u202e%2F/.."
	put(t, coll, markup, `{"big":1e400,"exact":12345678901234567890,"s":"</pre><script>document.title='broken'</script>","__proto__":{"a":1}}`)
	var wide strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&wide, `,"m%d":%d`, i, i)
	}
	put(t, coll, "wide", "{"+wide.String()[1:]+"}")
	put(t, coll, "large", `{"a":"`+strings.Repeat("<b>", 2<<20/3-10)+`"}`)

	b.visit("documents/" + coll.Name())
	b.until(`[...document.querySelectorAll('td.id')].some(td => td.innerText === $?)`, markup)
	b.click("td.id a", markup)
	b.until(`document.querySelector('h1').innerText === $?`, markup)
	b.sees(`"big": 1e400`)
	b.sees(`"exact": 12345678901234567890`)
	b.sees(`"__proto__": {`)
	b.click("button", "Edit")
	eval[any](b, `(e => { e.value = e.value.replace('1e400', '-1e400'); e.dispatchEvent(new Event('input', {bubbles: true})); })(document.querySelector('textarea'))`)
	b.click("button.primary", "Save")
	b.sees(`"big": -1e400`)
	item, err := client.Get[json.RawMessage](t.Context(), coll, markup)
	if err != nil || !strings.Contains(string(item.Value), `"big":-1e400,"exact":12345678901234567890`) {
		t.Errorf("%s, %v", item.Value, err)
	}
	for id, text := range map[string]string{"wide": `"m9999": 9999`, "large": "Show all"} {
		b.visit("documents/" + coll.Name() + "/" + id)
		b.until(`document.querySelector('pre') !== null`)
		if id == "wide" {
			b.click("button", "Show all")
		}
		b.sees(text)
	}
	b.visit("feed?" + url.Values{"collection": {coll.Name()}}.Encode())
	b.pick("form select", "sequence")
	b.fill("form input[required]", "1")
	b.click("button.primary", "Start")
	b.until(`[...document.querySelectorAll('td.id')].some(td => td.innerText === $?)`, markup)
	if title := eval[string](b, "document.title"); title != "lapse: main" {
		t.Errorf("the title is %q", title)
	}
}

// TestQueries: the page has cursor paging, the plan, a count, and errors at their fields.
func TestQueries(t *testing.T) {
	t.Parallel()
	coll := collection(t, client.IncludePaths("/n"))
	batch := coll.Batch()
	for i := range 60 {
		batch.Upsert(fmt.Sprintf("d%02d", i), map[string]int{"n": i})
	}
	run(t, batch)
	s := start(t, "", console.Options{})
	b := open(t, s, "")
	b.expect("400")
	b.visit("documents/" + coll.Name())
	b.fill("#where", "doc.n >= params.least")
	b.fill("#params", `{"least":10}`)
	b.fill("#orderBy", "/n desc")
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
	b.sees("50 documents match")
	for field, wrong := range map[string]string{"where": "doc.n >", "params": "5", "orderBy": "n", "select": "n"} {
		b.fill("#"+field, wrong)
		b.click("button.primary", "Run")
		b.until(`document.querySelector($?).innerText !== '' && document.querySelector($?).getAttribute('aria-invalid') === 'true'`, "#"+field+"-fault", "#"+field)
		b.fill("#"+field, map[string]string{"params": `{"least":10}`}[field]+" ")
	}
	if eval[bool](b, `[...document.querySelectorAll('main button')].some(e => e.innerText === 'Create')`) {
		t.Error("a read-only console offers to create a document")
	}
}

// TestFeedPage: the page takes 10,000 events, keeps at most 1,000 rows, and resumes after
// a pause.
func TestFeedPage(t *testing.T) {
	coll := collection(t)
	s := start(t, "", console.Options{})
	b := open(t, s, "")
	b.visit("feed?" + url.Values{"collection": {coll.Name()}}.Encode())
	b.sees("live")
	write := func(n int) {
		for range n / 1000 {
			batch := coll.Batch()
			for i := range 1000 {
				batch.Upsert(fmt.Sprint(i), map[string]int{"n": i})
			}
			run(t, batch)
		}
	}
	write(10000)
	b.sees("10,000 events")
	b.until(`document.querySelectorAll('.feed tbody tr').length === 1000`)
	_, last, err := lapse.LogBounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.until(`document.querySelector('.feed tbody td').innerText === $?`, grouped(int64(last)))
	b.click("button", "Pause")
	b.sees("paused")
	write(1000)
	if got := eval[string](b, `document.querySelector('.feed tbody td').innerText`); got != grouped(int64(last)) {
		t.Errorf("a paused feed went on to %s", got)
	}
	b.click("button", "Go on")
	b.sees("11,000 events")
}

// TestForecastZoom: dragging over the bars shows that range in finer bars.
func TestForecastZoom(t *testing.T) {
	t.Parallel()
	coll := collection(t, client.TTLPerDocument())
	for i := range 10 {
		put(t, coll, fmt.Sprint(i), fmt.Sprintf(`{"ttl":%d}`, 3600+600*i))
	}
	s := start(t, "", console.Options{})
	b := open(t, s, "")
	b.visit("forecast/" + coll.Name())
	b.until(`document.querySelector('.u-over') !== null`)
	b.sees("10 come due")
	b.click("summary", "As a table")
	wide := eval[int](b, `document.querySelectorAll('tbody tr').length`)
	drag := func(from, to float64) {
		eval[any](b, `void (over => {
			const {left, top, width} = over.getBoundingClientRect();
			const send = (type, share, to = over) => to.dispatchEvent(new MouseEvent(type, {bubbles: true, clientX: left + share * width, clientY: top + 20, movementX: 50, button: 0, view: window}));
			send('mousedown', $?); send('mousemove', $?); send('mousemove', $?); send('mouseup', $?, document);
		})(document.querySelector('.u-over'))`, from, to-0.005, to, to)
	}
	drag(0.02, 0.22)
	b.until(`document.querySelectorAll('tbody tr').length > $?`, wide)
	if due := eval[int](b, `[...document.querySelectorAll('tbody td.n')].reduce((sum, td) => sum + Number(td.innerText), 0)`); due != 10 {
		t.Errorf("the zoomed bars have %d documents", due)
	}
	b.click("button", "Whole span")
	b.until(`document.querySelectorAll('tbody tr').length === $?`, wide)
	// In a range of one year, most of the first bar lies before now.
	b.pick("main label:nth-of-type(2) select", "365d")
	b.until(`document.querySelectorAll('tbody tr').length > 0 && document.querySelectorAll('tbody tr').length !== $?`, wide)
	year := eval[string](b, `document.querySelector('tbody').innerText`)
	drag(0, 0.01)
	b.until(`document.querySelector('tbody').innerText !== $? && document.querySelectorAll('tbody tr').length > 1`, year)
}

// TestDueList: a click on a bar of the forecast, or on its number in the table, lists the
// documents due then, by deadline, page by page.
func TestDueList(t *testing.T) {
	t.Parallel()
	coll := collection(t, client.DefaultTTL(12*time.Hour))
	batch := coll.Batch()
	for i := range 30 {
		batch.Upsert(fmt.Sprintf("d%02d", i), map[string]any{"n": i}, client.TTL(4*time.Hour-time.Duration(i)*time.Second))
	}
	batch.Upsert("inherits", map[string]any{})
	batch.Upsert("held", map[string]any{})
	batch.Hold("held", "")
	run(t, batch)
	s := start(t, "", console.Options{})
	b := open(t, s, "")
	b.expect("400")
	b.visit("forecast/" + coll.Name())
	b.until(`document.querySelector('.u-over') !== null`)
	bar := func(share float64, types ...string) {
		eval[any](b, `void (over => {
			const {left, top, width} = over.getBoundingClientRect();
			for (const type of $?) over.dispatchEvent(new MouseEvent(type, {bubbles: true, clientX: left + $? * width, clientY: top + 20, movementX: 50, button: 0, view: window}));
		})(document.querySelector('.u-over'))`, types, share)
	}
	// A click on an empty bar has no effect.
	bar(0.9, "mousemove", "mousedown", "mouseup", "click")
	if hash := eval[string](b, `location.hash`); !strings.HasPrefix(hash, "#/forecast/") {
		t.Fatalf("a click beside the bars leads to %s", hash)
	}
	// A bar is one hour wide, so the 30 documents are in one or two bars.
	share := 3.5 / 24
	bar(share, "mousemove")
	if !eval[bool](b, `document.querySelector('.u-over').title.includes(' document')`) {
		share = 4.5 / 24
	}
	bar(share, "mousemove", "mousedown", "mouseup", "click")
	b.until(`/^#.documents.*from=\d+&until=\d+$/.test(location.hash)`)
	b.until(`/^in [34] h/.test(document.querySelector('td .left')?.innerText) && document.querySelector('td.spare').innerText === 'document'`)

	b.visit("documents/" + coll.Name())
	b.pick("form select", "due")
	b.fill("#until", "yesterday")
	b.click("button.primary", "Run")
	b.until(`document.querySelector('#due-fault').innerText.includes('"24h"')`)
	b.fill("#until", "24h")
	b.click("button.primary", "Run")
	b.until(`document.querySelector('td.id')?.innerText === 'd29'`)
	b.click("button", "Next")
	b.until(`[...document.querySelectorAll('tbody tr')].map(tr => tr.cells[0].innerText + ' ' + tr.cells[2].innerText).join() === 'd04 document,d03 document,d02 document,d01 document,d00 document,inherits collection'`)
	b.click("button", "Count")
	b.sees("31 documents match")
	b.pick("form select", "held")
	b.click("button.primary", "Run")
	b.until(`[...document.querySelectorAll('td.id')].map(td => td.innerText).join() === 'held'`)

	b.visit("forecast/" + coll.Name())
	b.click("summary", "As a table")
	b.click("tbody a", "1")
	b.until(`document.querySelector('td.id') !== null`)
}

// TestHoldAndRestore: a held document has no countdown and cannot be deleted. A release
// expires it if it is overdue. Expired documents and earlier versions can be restored.
func TestHoldAndRestore(t *testing.T) {
	t.Parallel()
	coll := collection(t, client.TTLPerDocument())
	put(t, coll, "a", `{"n":1}`)
	s := start(t, "", console.Options{Write: true})
	b := open(t, s, "")
	b.expect("404")
	b.expect("412")
	b.visit("documents/" + coll.Name() + "/a")
	badge := func(text string) {
		t.Helper()
		b.until(`document.querySelector('.state .badge')?.innerText === $?`, text)
	}
	badge("never expires")
	b.click("button", "Touch")
	b.until(`document.querySelector('.timeline').innerText.includes('Touched')`)
	put(t, coll, "a", `{"n":1}`)
	b.click("button", "Touch")
	b.sees("Somebody was faster")
	// A hold applies to the document, whatever its version.
	b.fill(".reason", "case <4711>")
	b.click("button", "Hold")
	badge("held")
	b.until(`document.querySelector('.state').innerText.includes('case <4711>') && document.querySelector('.timeline').innerText.includes('Held: case <4711>')`)
	b.until(`[...document.querySelectorAll('button')].find(e => e.innerText === 'Delete').disabled`)
	b.pick(`select[aria-label="Time to live: unit"]`, "seconds")
	b.fill(`input[aria-label="Time to live"]`, "1")
	b.click("button", "Set")
	b.sees("overdue since")
	if eval[bool](b, `document.querySelector('.countdown') !== null`) {
		t.Error("a held document has a countdown")
	}
	held, err := client.Get[json.RawMessage](t.Context(), coll, "a")
	if err != nil || !held.Held || held.Reason != "case <4711>" {
		t.Fatalf("%+v, %v", held, err)
	}

	b.visit("collections/" + coll.Name())
	b.click(".summary a", "1 held")
	b.until(`document.querySelector('td.id')?.innerText === 'a'`)
	b.visit("collections/" + coll.Name())
	b.sees("1 document is held: release it first.")

	b.visit("documents/" + coll.Name() + "/a")
	b.click("button", "Release")
	b.sees("Release it and let it expire?")
	b.click("button", "Yes")
	badge("expired")
	b.click("button", "Restore")
	b.until(`document.querySelector('.timeline').innerText.includes('Created, restored from version')`)
	badge("expired")
	b.until(`document.querySelector('.timeline li').innerText.startsWith('Expired')`)
	eval[any](b, `void [...document.querySelectorAll('summary')].filter(e => e.innerText === 'Content').at(-1).click()`)
	b.click("button", "Restore this version")
	badge("never expires")
	if item, err := client.Get[json.RawMessage](t.Context(), coll, "a"); err != nil || strings.Contains(string(item.Value), "ttl") {
		t.Errorf("%s, %v", item.Value, err)
	}
}

// TestEndedWithCollection: the page of a document says that it was deleted with its
// collection, and offers to restore it once there is a new one.
func TestEndedWithCollection(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, "a", `{"n":1}`)
	if err := lapse.DeleteCollection(t.Context(), coll.Name()); err != nil {
		t.Fatal(err)
	}
	b := open(t, start(t, "", console.Options{Write: true}), "")
	b.expect("404")
	b.visit("documents/" + coll.Name() + "/a")
	b.until(`document.querySelector('.state .badge')?.innerText === 'deleted with its collection'`)
	b.until(`document.querySelector('.timeline li').innerText.startsWith('Deleted with its collection')`)
	if eval[bool](b, `document.querySelector('main button') !== null || document.querySelector('main .fault:not([hidden])') !== null`) {
		t.Errorf("there is nothing to restore it into: %s", b.text())
	}
	if _, err := lapse.CreateCollection(t.Context(), coll.Name()); err != nil {
		t.Fatal(err)
	}
	b.load("documents/" + coll.Name() + "/a")
	b.click("button", "Restore")
	b.until(`document.querySelector('.state .badge')?.innerText === 'never expires'`)
}

// TestFailuresAreShown: what a page could not load is an error where it belongs, beside what
// it could.
func TestFailuresAreShown(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, "a", `{"n":1}`)
	h := console.New(lapse, console.Options{Write: true})
	var failing atomic.Value
	s := host(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if op, _ := failing.Load().(string); op != "" && r.URL.Path == "/api/"+op {
			http.Error(w, `{"code":503,"error":"unavailable","message":"no `+op+` now"}`, http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	}))
	b := open(t, s, "")
	b.expect("503")
	for _, test := range []struct{ op, page, beside string }{
		{"collection.get", "collections", coll.Name()},
		{"history", "documents/" + coll.Name() + "/a", `"n": 1`},
		{"collection.list", "documents/" + coll.Name(), "New document"},
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
	b.click("button", "Load again")
	b.sees("no collection.get now")
}

// TestReadOnlyPages: a read-only console shows the effect of a change, but has no button
// to make it.
func TestReadOnlyPages(t *testing.T) {
	t.Parallel()
	coll := collection(t)
	put(t, coll, "a", "{}")
	put(t, coll, "deleted", "{}")
	if err := client.Delete(t.Context(), coll, "deleted"); err != nil {
		t.Fatal(err)
	}
	s := start(t, "", console.Options{})
	b := open(t, s, "")
	b.expect("404")
	for fragment, shows := range map[string]string{"collections": coll.Name(), "collections/" + coll.Name(): "at once", "documents/" + coll.Name() + "/a": "Created", "documents/" + coll.Name() + "/deleted": "Last content"} {
		b.visit(fragment)
		b.sees("read-only")
		b.sees(shows)
		if eval[bool](b, `[...document.querySelectorAll('main button')].some(e => /Save|Delete|Create|Edit|Set|Touch|Hold|Release|Restore/.test(e.innerText))`) {
			t.Errorf("%s offers a change", fragment)
		}
	}
	b.visit("collections/" + coll.Name())
	b.click("input[value=each]", "")
	b.sees("New, TTL On (no default)")
}

func TestTokenPage(t *testing.T) {
	t.Parallel()
	s := start(t, "", console.Options{Token: "0123456789abcdef"})
	b := open(t, s, "")
	b.expect("401")
	b.visit("")
	b.sees("needs its token")
	b.fill("input", "not it")
	b.click("button", "Continue")
	b.until(`document.querySelector('input')?.value === ''`)
	b.fill("input", "0123456789abcdef")
	b.click("button", "Continue")
	b.sees("Processes")
}

// everyPage returns the fragments of all pages, each with a text of the complete page.
func everyPage(coll *client.Collection) map[string]string {
	return map[string]string{
		"": "Processes", "collections": coll.Name(), "collections/" + coll.Name(): "at once",
		"forecast/" + coll.Name(): "come due", "documents/" + coll.Name(): "Modified", "documents/" + coll.Name() + "?until=24h": "ttl of", "feed": "live",
		"documents/" + coll.Name() + "/a": "History", "documents/" + coll.Name() + "/held": "if released", "documents/" + coll.Name() + "/deleted": "Last content",
	}
}

// fill writes the documents of everyPage into a collection.
func fill(t *testing.T, coll *client.Collection) {
	t.Helper()
	put(t, coll, "a", `{"n":1}`)
	put(t, coll, "a", `{"text":"`+strings.Repeat("long", 50)+`"}`)
	put(t, coll, "held", `{}`)
	put(t, coll, "deleted", `{}`)
	if err := errors.Join(client.Hold(t.Context(), coll, "held", strings.Repeat("long", 250)), client.Delete(t.Context(), coll, "deleted")); err != nil {
		t.Fatal(err)
	}
}

// TestNarrowPagesBelowPrefix: all pages work below a prefix and fit the width of a phone.
func TestNarrowPagesBelowPrefix(t *testing.T) {
	t.Parallel()
	coll := collection(t, client.DefaultTTL(time.Hour))
	fill(t, coll)
	s := start(t, "/some/prefix", console.Options{Write: true})
	b := open(t, s, "/some/prefix")
	b.expect("404")
	b.width(360)
	for fragment, shows := range everyPage(coll) {
		b.visit(fragment)
		b.until(`document.body.textContent.includes($?)`, shows)
		if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 360 {
			t.Errorf("#/%s is %d pixels wide", fragment, wide)
		}
	}
	response, _ := send(t, s, "GET", "/some/prefix", "", nil)
	if got := response.Request.URL.Path; got != "/some/prefix/" {
		t.Errorf("the prefix without its slash leads to %s", got)
	}
}

// TestAccessibility: axe-core finds no serious violation on any page, light or dark.
func TestAccessibility(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile(filepath.Join("testdata", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	coll := collection(t, client.DefaultTTL(time.Hour))
	fill(t, coll)
	s := start(t, "", console.Options{Write: true})
	b := open(t, s, "")
	b.expect("404")
	for fragment, shows := range everyPage(coll) {
		b.scheme("light")
		b.visit(fragment)
		b.until(`document.body.textContent.includes($?)`, shows)
		if !eval[bool](b, `'axe' in window`) {
			eval[any](b, string(axe)+`;0`)
		}
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			// In the dark scheme only colours differ.
			eval[any](b, `delete window.found, axe.run(document, matchMedia('(prefers-color-scheme: dark)').matches ? {runOnly: ['color-contrast']} : {}).then(r => { window.found = r.violations.filter(v => ['serious', 'critical'].includes(v.impact)).map(v => v.id + ': ' + v.nodes.map(n => n.html.slice(0, 200)).join(' ')); }), 0`)
			b.until(`window.found !== undefined`)
			for _, finding := range eval[[]string](b, `window.found`) {
				t.Errorf("#/%s, %s: %s", fragment, scheme, finding)
			}
		}
	}
}

// TestFeedEndsWithPage: leaving a page ends its feed, so more pages than the feed limit
// work one after another.
func TestFeedEndsWithPage(t *testing.T) {
	t.Parallel()
	h := console.New(lapse, console.Options{})
	h.SetMaxFeeds(2)
	b := open(t, host(t, h), "")
	for range 3 {
		b.load("feed")
		b.sees("live")
	}
}
