package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/examples/internal/manual"
	"github.com/lapsedb/lapse/examples/internal/server"
	"github.com/lapsedb/lapse/lapsetest/bubble"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// account is what the log says of the seats.
type account struct {
	sold    map[string]bool // by seat and version of the hold
	expired map[string]bool
}

// audit reads the log: no show ever has more seats taken than there are, and each hold
// ends once at most.
func audit(t *testing.T, c *client.Client, capacity int) account {
	t.Helper()
	a := account{map[string]bool{}, map[string]bool{}}
	holds := map[string]string{} // version of the hold by seat
	free := map[string]int{}     // by show
	for e, err := range c.Changes(t.Context(), client.FromStart(), client.UntilNow()) {
		check(t, err)
		show, _, _ := strings.Cut(e.ID, "/")
		if _, known := free[show]; !known {
			free[show] = capacity
		}
		hold := e.ID + " " + holds[e.ID]
		switch e.Type {
		case client.DocumentCreated:
			free[show]--
			if free[show] < 0 || holds[e.ID] != "" {
				t.Fatalf("event %d takes %s: %d are free", e.Seq, e.ID, free[show])
			}
			holds[e.ID] = fmt.Sprint(e.Seq)
		case client.DocumentReplaced:
			if e.Previous != holds[e.ID] || a.sold[hold] || a.expired[hold] {
				t.Fatalf("event %d sells %s, which ended", e.Seq, hold)
			}
			a.sold[hold] = true
		case client.DocumentExpired, client.DocumentDeleted:
			if e.Previous != holds[e.ID] || a.sold[hold] || a.expired[hold] {
				t.Fatalf("event %d ends %s, which was sold or had ended", e.Seq, hold)
			}
			a.expired[hold] = true
			free[show]++
			holds[e.ID] = ""
		}
	}
	return a
}

// TestVirtual: confirmation and expiry meet at the deadline thousands of times, while
// others wait for the seats, and exactly one of them wins.
func TestVirtual(t *testing.T) {
	const shows, capacity, callers = 25, 40, 100
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		c := s.Client(t)
		seats, err := OpenSeats(t.Context(), c, capacity, 2*time.Second)
		check(t, err)
		var mu sync.Mutex
		confirmed, late := map[string]bool{}, map[string]bool{}
		meet := func(h Hold, before time.Duration) {
			time.Sleep(time.Until(h.Until) - before)
			err := seats.Confirm(t.Context(), h)
			if err != nil && err != ErrTooLate {
				t.Error(err)
			}
			if before > 0 && err != nil || before < 0 && err == nil {
				t.Errorf("%v before the deadline: %v", before, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				confirmed[h.Seat+" "+h.Version] = true
			} else {
				late[h.Seat+" "+h.Version] = true
			}
		}
		for show := range shows {
			name := fmt.Sprint("show", show)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for { // until a seat is free, or all are sold
						h, err := seats.Hold(t.Context(), name)
						if err == nil {
							meet(h, []time.Duration{0, time.Nanosecond, time.Millisecond, -time.Nanosecond, -time.Millisecond}[i%5])
							return
						}
						if !errors.Is(err, ErrSoldOut) && !errors.Is(err, client.ErrOverloaded) {
							t.Error(err)
							return
						}
						time.Sleep(time.Second)
						mu.Lock()
						sold := 0
						for seat := range confirmed {
							if strings.HasPrefix(seat, name+"/") {
								sold++
							}
						}
						mu.Unlock()
						if sold == capacity {
							return
						}
					}
				})
			}
			all.Wait()
		}
		time.Sleep(3 * time.Second)
		a := audit(t, c, capacity)
		if len(a.sold) != len(confirmed) || len(a.expired) != len(late) {
			t.Errorf("%d sold and %d expired by the log, %d and %d by the replies", len(a.sold), len(a.expired), len(confirmed), len(late))
		}
		for hold := range confirmed {
			if !a.sold[hold] {
				t.Errorf("%s was confirmed, not sold", hold)
			}
			id, version, _ := strings.Cut(hold, " ")
			if err := seats.Confirm(t.Context(), Hold{Seat: id, Version: version}); err != nil {
				t.Errorf("confirm %s again: %v", hold, err)
			}
		}
		if len(late) < 500 || len(confirmed) < 500 {
			t.Errorf("%d confirmations and %d expiries are too few", len(confirmed), len(late))
		}
		t.Logf("%d confirmed, %d expired", len(confirmed), len(late))
	})
}

// TestForeign: a document that is no seat takes its place, and keeps nobody from the others.
func TestForeign(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		seats, err := OpenSeats(t.Context(), s.Client(t), 2, time.Minute)
		check(t, err)
		_, err = client.Upsert(t.Context(), seats.coll, "hamlet/0", map[string]int{"sold": 5})
		check(t, err)
		if h, err := seats.Hold(t.Context(), "hamlet"); h.Seat != "hamlet/1" || err != nil {
			t.Errorf("holds %q, %v", h.Seat, err)
		}
		if _, err := seats.Hold(t.Context(), "hamlet"); err != ErrSoldOut {
			t.Errorf("the next one: %v", err)
		}
	})
}

func TestMain(m *testing.M) { manual.Main(m, main) }

// TestPage: docs/reservations.md, on lapse serve.
func TestPage(t *testing.T) {
	manual.Run(t, "reservations.md", "NATS_URL="+server.Start(t))
}

// TestServer: the same program over HTTP, on lapse serve.
func TestServer(t *testing.T) {
	const capacity = 3
	c := server.Connect(t)
	seats, err := OpenSeats(t.Context(), c, capacity, time.Second)
	check(t, err)
	web := httptest.NewServer(seats.Handler())
	defer web.Close()
	request := func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, web.URL+path, strings.NewReader(body))
		check(t, err)
		response, err := http.DefaultClient.Do(r)
		check(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		check(t, err)
		return response.StatusCode, strings.TrimSpace(string(text))
	}
	// All are held: one confirms, the others run out, which the log says.
	var holds []string
	for range capacity {
		code, hold := request("POST", "/hold/hamlet", "")
		if code != http.StatusOK {
			t.Fatalf("hold: %d %s", code, hold)
		}
		holds = append(holds, hold)
	}
	if code, text := request("POST", "/confirm", holds[0]); code != http.StatusOK {
		t.Errorf("confirm: %d %s", code, text)
	}
	expired := 0
	for _, err := range client.Expirations[seat](t.Context(), c, client.FromStart()) {
		check(t, err)
		if expired++; expired == capacity-1 {
			break
		}
	}
	if code, text := request("POST", "/confirm", holds[1]); code != http.StatusConflict {
		t.Errorf("confirm after the end: %d %s", code, text)
	}
	if code, text := request("POST", "/confirm", holds[0]); code != http.StatusOK {
		t.Errorf("confirm again: %d %s", code, text)
	}
	if _, text := request("GET", "/free/hamlet", ""); text != fmt.Sprint(capacity-1) {
		t.Errorf("%s are free", text)
	}
	if a := audit(t, c, capacity); len(a.sold) != 1 || len(a.expired) != capacity-1 {
		t.Errorf("%v", a)
	}
}
