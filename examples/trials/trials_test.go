package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
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
		trials, err := OpenTrials(ctx, c, length, warn)
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

// The warning comes after a second; NATS waits five for the mailer that was killed.
const length, warn = 8 * time.Second, 7 * time.Second

// TestMain is the mailer if TestServer starts it.
func TestMain(m *testing.M) {
	if mails := os.Getenv("TEST_MAILS"); mails != "" {
		fmt.Fprintln(os.Stderr, run(context.Background(), os.Getenv("TEST_NATS"), mails, length, warn))
		os.Exit(1)
	}
	os.Exit(m.Run())
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
	trials, err := OpenTrials(t.Context(), c, length, warn)
	check(t, err)
	check(t, trials.Start(t.Context(), "ann", "ann"))

	asked := map[string]int{}
	for ended := false; !ended; {
		mailer := child.Command(t, os.Args[0])
		mailer.Env, mailer.Stderr = append(mailer.Env, "TEST_MAILS="+web.URL, "TEST_NATS="+url), os.Stderr
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
