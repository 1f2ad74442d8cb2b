package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// shop is a store of a shop on an afternoon, in which the clock has been moved by an hour.
type shop struct {
	*tab
	lapse                           *client.Client
	sessions, carts, orders, trials *client.Collection
	random                          *rand.Rand
	n                               int
}

// openShop starts lapse test, and opens its console.
func openShop(t *testing.T) *shop {
	cmd := harness.Command(t, "test", "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0", "--at", "2026-11-27T15:02:00Z")
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var ready struct{ NATS, Console string }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	check(t, err)
	s := &shop{tab: open(t, ready.Console), random: rand.New(rand.NewPCG(1, 2))}
	if s.lapse, err = client.Connect(ready.NATS); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.lapse.Close)
	for name, into := range map[string]struct {
		coll **client.Collection
		opts []client.PropertyOption
	}{
		"sessions": {&s.sessions, []client.PropertyOption{client.DefaultTTL(30 * time.Minute), client.IncludePaths("/user")}},
		"carts":    {&s.carts, []client.PropertyOption{client.DefaultTTL(2 * time.Hour)}},
		"orders":   {&s.orders, []client.PropertyOption{client.DefaultTTL(7 * 24 * time.Hour)}},
		"trials":   {&s.trials, []client.PropertyOption{client.DefaultTTL(14 * 24 * time.Hour), client.WarnBefore(2 * 24 * time.Hour)}},
	} {
		if *into.coll, err = s.lapse.CreateCollection(t.Context(), name, into.opts...); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var names = []string{"ann", "bob", "cem", "dora", "eli", "finn", "gita", "hana", "ivo", "jun"}

// some returns one of several values.
func (s *shop) some(of ...string) string { return of[s.random.IntN(len(of))] }

// visits writes sessions, some with a cart or an order.
func (s *shop) visits(n int, opts ...client.OperationOption) {
	sessions, carts, orders := s.sessions.Batch(), s.carts.Batch(), s.orders.Batch()
	for range n {
		s.n++
		user := s.some(names...)
		id := fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", s.random.Uint32(), s.random.IntN(1<<16), s.random.IntN(1<<12), s.random.IntN(1<<12), s.random.Int64N(1<<48))
		sessions.Upsert(id, map[string]any{"user": user, "device": s.some("phone", "phone", "laptop"), "pages": 1 + s.random.IntN(20)}, opts...)
		if s.n%3 == 0 {
			carts.Upsert("cart-"+user+fmt.Sprint(s.n), map[string]any{"user": user, "lines": []map[string]any{{"sku": fmt.Sprint("SKU-", 100+s.random.IntN(80)), "n": 1}}, "total": 5 + s.random.IntN(200)})
		}
		if s.n%7 == 0 {
			orders.Upsert(fmt.Sprintf("SO-2026-%05d", s.n), map[string]any{"customer": user, "total": 5 + s.random.IntN(400), "state": s.some("open", "paid", "sent")})
		}
	}
	for _, batch := range []*client.Batch{sessions, carts, orders} {
		if batch.Len() > 0 {
			write(s.t, batch)
		}
	}
}

// move moves the clock, by the page's own request.
func (s *shop) move(by time.Duration) {
	eval[any](s.tab, `window.moved = false, void fetch('api/advance?by=' + $?, {method: 'POST', headers: {'Lapse-Console': '1'}}).then(r => r.json()).then(() => { window.moved = true; })`, fmt.Sprint(int(by.Seconds())))
	s.until(`window.moved`)
}

// TestScreenshots writes the pictures of the manual into the directory TEST_SCREENSHOTS.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("TEST_SCREENSHOTS")
	if dir == "" {
		t.Skip("TEST_SCREENSHOTS is not set")
	}
	s := openShop(t)
	s.expect("404")
	s.do(chromedp.EmulateViewport(1280, 820))
	take := func(name string) {
		t.Helper()
		check(t, s.picture(filepath.Join(dir, name+".png"), false))
	}
	s.visit("")
	for minute := range 60 {
		s.visits(15 + s.random.IntN(20))
		if minute == 20 { // a campaign, whose visitors leave together
			s.visits(900, client.TTL(22*time.Minute))
		}
		if minute == 45 {
			s.visits(950, client.TTL(40*time.Minute))
		}
		s.move(time.Minute)
	}
	put(t, s.trials, "acme", `{"company":"Acme","plan":"team","seats":12}`)
	put(t, s.sessions, "kiosk-7", `{"user":"ann","device":"kiosk"}`)
	for e, err := range s.lapse.Changes(t.Context(), client.Durable("billing"), client.FromSeq(1)) {
		check(t, err)
		if e.Seq > 3000 {
			break
		}
	}
	s.load("")
	s.sees("billing")
	s.until(`document.querySelectorAll('canvas').length >= 3`)
	take("overview")
	s.scheme("dark")
	take("dark")
	s.scheme("light")

	s.visit("documents/sessions?until=24h")
	s.until(`document.querySelectorAll('tbody tr').length > 10`)
	take("due")
	s.visit("forecast/sessions?ahead=1h")
	s.until(`document.querySelector('canvas') !== null`)
	take("forecast")
	s.visit("collections/carts")
	s.duration("Time to live", "15", "minutes")
	s.until(`document.querySelectorAll('.beside .u-over').length === 2 && document.querySelector('.sentence').innerText.includes('documents')`)
	take("ttl")
	s.visit("feed?from=1&type=DocumentExpired&type=DocumentExpiring&type=DocumentCreated&type=CollectionCreated")
	s.sees("live")
	s.until(`document.querySelectorAll('.feed tbody tr').length === 1000`)
	take("feed")

	put(t, s.orders, "SO-2026-90001", `{"customer":"ann","total":120,"state":"open"}`)
	s.visit("documents/orders/SO-2026-90001")
	s.click("button", "Edit")
	s.fill("div#content", `{"customer":"ann","total":120,"state":"paid"}`)
	put(t, s.orders, "SO-2026-90001", `{"customer":"ann","total":135,"state":"open","note":"gift"}`)
	s.until(`document.querySelectorAll('.diff').length >= 2`)
	take("conflict")

	put(t, s.sessions, "s-4711", `{"user":"ann","device":"phone","pages":1}`)
	put(t, s.sessions, "s-4711", `{"user":"ann","device":"phone","pages":4,"ttl":60}`)
	s.move(2 * time.Minute)
	s.visit("documents/sessions/s-4711")
	s.sees("Last content")
	take("document")
}
