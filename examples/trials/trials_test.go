package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/examples/internal/manual"
	"github.com/lapsedb/lapse/examples/internal/server"
	"github.com/lapsedb/lapse/lapsetest"
	"github.com/lapsedb/lapse/lapsetest/bubble"
	"github.com/lapsedb/lapse/test/child"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// service is a mail service: it sends once for each key.
type service struct {
	mu    sync.Mutex
	asked int
	sent  map[string]Mail
}

// send returns how many requests there were.
func (s *service) send(key string, m Mail) (asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if _, again := s.sent[key]; !again {
		s.sent[key] = m
	}
	return s.asked
}

// mails returns how often each address got which mail, w or e.
func (s *service) mails() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]string{}
	for _, m := range s.sent {
		if strings.Contains(m.Text, "has ended") {
			all[m.To] += "e"
		} else {
			all[m.To] = "w" + all[m.To]
		}
	}
	return all
}

// TestVirtual: each mail is sent once, although the mailer crashes after every 20th
// request, with its result unknown.
func TestVirtual(t *testing.T) {
	const length, warn, users = 3 * time.Hour, time.Hour, 60
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		ctx, c := t.Context(), s.Client(t)
		trials, err := OpenTrials(ctx, c, client.DefaultTTL(length), client.WarnBefore(warn))
		check(t, err)
		began := time.Now()
		for i := range users {
			check(t, trials.Start(ctx, fmt.Sprint("user", i), fmt.Sprint("user", i)))
		}
		check(t, trials.Start(ctx, "bad", "bad"))
		time.Sleep(time.Hour)
		check(t, trials.Extend(ctx, "user1"))
		check(t, trials.Subscribe(ctx, "user2"))

		mail := &service{sent: map[string]Mail{}}
		crashes := 0
		mailer := func(until time.Time) {
			for time.Now().Before(until) {
				life, end := context.WithDeadline(ctx, until)
				crash := errors.New("crash")
				life, die := context.WithCancelCause(life)
				err := trials.Mail(life, func(ctx context.Context, key string, m Mail) error {
					if m.To == "bad" {
						return errors.New("there is no such address")
					}
					if mail.send(key, m)%20 == 0 {
						die(crash)
						return crash
					}
					return nil
				})
				if context.Cause(life) == crash {
					crashes++
				} else if life.Err() == nil {
					t.Error(err)
				}
				end()
				die(nil)
			}
		}
		mailer(began.Add(length - warn + 10*time.Minute))
		if got := mail.mails(); len(got) != users-2 || got["user0"] != "w" {
			t.Errorf("after the warnings: %d users have %v", len(got), got)
		}
		// The mailer is down while the extended trial is warned of and paid.
		time.Sleep(time.Until(began.Add(length + 5*time.Minute)))
		check(t, trials.Subscribe(ctx, "user1"))
		mailer(began.Add(length + time.Hour))

		got := mail.mails()
		if len(got) != users-2 {
			t.Errorf("%d users got mails, want %d", len(got), users-2)
		}
		for user, mails := range got {
			if mails != "we" {
				t.Errorf("%s got %q", user, mails)
			}
		}
		if crashes < 5 {
			t.Errorf("only %d crashes", crashes)
		}
		if n, err := client.Count(ctx, trials.unsent); err != nil || n != 2 {
			t.Errorf("%d mails are unsent, %v: want both to bad", n, err)
		}
	})
}

// TestSchedule: the events that mails are sent for, on the days that the flags name.
func TestSchedule(t *testing.T) {
	db := lapsetest.New(t, lapsetest.At("2026-01-01T00:00:00Z"))
	db.CreateCollection("trials", lapsetest.Properties(client.DefaultTTL(30*24*time.Hour), client.WarnBefore(7*24*time.Hour)))
	db.Create("trials", "ann", Trial{"ann@example.com"})
	seq := db.Seq()
	db.Finish()
	db.WantEvents(seq+1, `
		{"time":"2026-01-24T00:00:00.000Z","type":"DocumentExpiring","id":"ann","body":{"address":"ann@example.com"}}
		{"time":"2026-01-31T00:00:00.000Z","type":"DocumentExpired","id":"ann","body":{"address":"ann@example.com"}}`)
}

// TestSettings: those of a later start apply to trials that run; a start without any leaves
// them, and one with a bad value changes nothing.
func TestSettings(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		ctx, c := t.Context(), s.Client(t)
		open := func(settings ...client.PropertyOption) (*Trials, error) {
			return OpenTrials(ctx, c, append(settings, client.Metadata("owner", "shop"))...)
		}
		trials, err := open()
		check(t, err)
		check(t, trials.Start(ctx, "ann", "ann"))
		_, err = open(client.DefaultTTL(time.Hour), client.WarnBefore(20*time.Minute))
		check(t, err)
		_, err = OpenTrials(ctx, c)
		check(t, err)
		if _, err = open(client.DefaultTTL(-time.Hour)); !errors.Is(err, client.ErrBadTTL) {
			t.Errorf("a negative length: %v", err)
		}
		_, err = open(client.WarnBefore(30 * time.Minute))
		check(t, err)
		mail := &service{sent: map[string]Mail{}}
		for _, at := range []struct {
			passes time.Duration
			want   string
		}{{29 * time.Minute, ""}, {2 * time.Minute, "w"}, {28 * time.Minute, "w"}, {2 * time.Minute, "we"}} {
			life, end := context.WithTimeout(ctx, at.passes)
			_ = trials.Mail(life, func(_ context.Context, key string, m Mail) error { mail.send(key, m); return nil })
			end()
			if got := mail.mails()["ann"]; got != at.want {
				t.Errorf("ann got %q, want %q", got, at.want)
			}
		}
		if got := trials.running.Info().Metadata; len(got) != 1 {
			t.Errorf("the metadata are %v", got)
		}
	})
}

// TestForeign: documents that are no trials, that are too large or too deep to be put aside
// as a whole, or become unreadable after the warning, end no mailer.
func TestForeign(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		ctx := t.Context()
		trials, err := OpenTrials(ctx, s.Client(t), client.DefaultTTL(time.Hour), client.WarnBefore(10*time.Minute))
		check(t, err)
		const open, shut = `{"address":5,"x":`, `}`
		for id, document := range map[string]string{
			"unreadable": open + `1` + shut,
			"large":      open + `"` + strings.Repeat("x", 2<<20-len(open+shut)-2) + `"` + shut,
			"deep":       open + strings.Repeat("[", 127) + strings.Repeat("]", 127) + shut,
			"changed":    `{"address":"changed"}`,
		} {
			_, err := client.Upsert(ctx, trials.running, id, json.RawMessage(document))
			check(t, err)
		}
		check(t, trials.Start(ctx, "ann", "ann"))
		time.Sleep(55 * time.Minute) // the mailer comes late
		_, err = client.Upsert(ctx, trials.running, "changed", map[string]any{"address": 5})
		check(t, err)
		mail := &service{sent: map[string]Mail{}}
		life, end := context.WithTimeout(ctx, 2*time.Hour)
		defer end()
		if err := trials.Mail(life, func(_ context.Context, key string, m Mail) error { mail.send(key, m); return nil }); life.Err() == nil {
			t.Error(err)
		}
		if got := fmt.Sprint(mail.mails()); got != "map[ann:we]" {
			t.Errorf("mails: %s", got)
		}
		var aside []string
		for item, err := range client.Query[struct{ Event struct{ ID, Type string } }](ctx, trials.unsent) {
			check(t, err)
			aside = append(aside, item.Value.Event.ID+" "+item.Value.Event.Type)
		}
		slices.Sort(aside)
		if got := strings.Join(aside, ", "); got != "changed DocumentExpired, changed DocumentExpiring, deep DocumentExpired, deep DocumentExpiring, "+
			"large DocumentExpired, large DocumentExpiring, unreadable DocumentExpired, unreadable DocumentExpiring" {
			t.Errorf("put aside: %s", got)
		}
	})
}

func TestMain(m *testing.M) { manual.Main(m, main) }

// TestPage: docs/trials.md, on lapse serve.
func TestPage(t *testing.T) {
	manual.Run(t, "trials.md", "NATS_URL="+server.Start(t))
}

// TestServer: a mailer process that is killed when the service has sent a mail, before it
// hears of that, once for each mail.
func TestServer(t *testing.T) {
	url := server.Start(t)
	mail := &service{sent: map[string]Mail{}}
	type request struct {
		key   string
		mail  Mail
		reply chan bool
	}
	requests := make(chan request)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := request{key: r.Header.Get("Idempotency-Key"), reply: make(chan bool)}
		if err := json.NewDecoder(r.Body).Decode(&one.mail); err != nil {
			t.Error(err)
		}
		mail.send(one.key, one.mail)
		requests <- one
		<-one.reply
	}))
	defer web.Close()
	c := server.Client(t, url)
	// The warning comes after a second; NATS waits five for the mailer that was killed.
	trials, err := OpenTrials(t.Context(), c, client.DefaultTTL(8*time.Second), client.WarnBefore(7*time.Second))
	check(t, err)
	check(t, trials.Start(t.Context(), "ann", "ann"))

	asked := map[string]int{}
	for ended := false; !ended; {
		mailer := child.Command(t, os.Args[0], "-mails", web.URL)
		mailer.Env, mailer.Stderr = append(mailer.Env, manual.Program+"=1", "NATS_URL="+url), os.Stderr
		check(t, mailer.Start())
		for lives := true; lives && !ended; {
			r := <-requests
			asked[r.key]++
			if asked[r.key] == 1 {
				check(t, mailer.Process.Kill()) // the mail is sent, and the mailer does not know
				lives = false
			} else {
				ended = strings.Contains(r.mail.Text, "has ended")
			}
			close(r.reply)
		}
		_ = mailer.Process.Kill()
		_ = mailer.Wait()
	}
	// A warning that would come again after the end of the trial does not.
	if got := mail.mails()["ann"]; got != "we" {
		t.Errorf("ann got %q", got)
	}
}
