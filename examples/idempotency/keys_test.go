package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/lapsetest/bubble"
)

const limit, keep = time.Minute, time.Hour

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// api is the handler of a process.
func api(t *testing.T, s *bubble.Server, next http.HandlerFunc) http.HandlerFunc {
	t.Helper()
	keys, err := OpenKeys(t.Context(), s.Client(t, client.WithReadYourWrites()), limit, keep)
	check(t, err)
	return keys.Handler(func(r *http.Request) string { return r.Header.Get("Authorization") }, next)
}

// post sends a request with a key and more headers, and returns the reply in one line.
func post(h http.HandlerFunc, path, body string, headers ...string) string {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h(w, r)
	return line(w.Result())
}

func line(r *http.Response) string {
	body, _ := io.ReadAll(r.Body)
	text := fmt.Sprintf("%d %s", r.StatusCode, body)
	for _, name := range []string{"Location", "X-Order", "Set-Cookie", "Idempotent-Replayed"} {
		if value := r.Header.Get(name); value != "" {
			text += fmt.Sprintf(" %s=%s", name, value)
		}
	}
	return text
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.HasPrefix(got, want) || want == "" {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestOneWins: of concurrent callers in two processes one runs, and all get its reply.
func TestOneWins(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		var ran atomic.Int32
		charge := func(w http.ResponseWriter, r *http.Request) {
			n := ran.Add(1)
			time.Sleep(time.Duration(n%3) * time.Second)
			fmt.Fprint(w, "charge ", n)
		}
		processes := []http.HandlerFunc{api(t, s, charge), api(t, s, charge)}
		const keys, callers = 20, 30
		var mu sync.Mutex
		replies := map[string]bool{}
		for key := range keys {
			var all sync.WaitGroup
			name := fmt.Sprint("key", key)
			for i := range callers {
				all.Go(func() {
					for {
						got := post(processes[i%2], "/charges", "5", "Idempotency-Key", name)
						if !strings.HasPrefix(got, "409 ") {
							mu.Lock()
							replies[name+strings.TrimSuffix(got, " Idempotent-Replayed=true")] = true
							mu.Unlock()
							return
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			all.Wait()
		}
		if ran.Load() != keys || len(replies) != keys {
			t.Errorf("%d keys ran %d times, with replies %v", keys, ran.Load(), replies)
		}
	})
}

// TestReplay: a repeat gets the reply, also after a restart, up to the end that the key has
// from the beginning. Another request with the key is refused.
func TestReplay(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		ran := 0
		charge := func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			check(t, err)
			ran++
			time.Sleep(30 * time.Second)
			w.Header().Set("Location", fmt.Sprint("/charges/", ran))
			w.Header().Set("X-Order", "7")
			w.Header().Set("Set-Cookie", "a=secret")
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X-Order", "too late")
			fmt.Fprintf(w, "%s: %s", r.Method, body)
		}
		h := api(t, s, charge)
		key := []string{"Idempotency-Key", `"7f3a"`, "Authorization", "ann"}
		began := time.Now()
		want(t, "the first", post(h, "/charges", "5", key...), "201 POST: 5 Location=/charges/1 X-Order=7 Set-Cookie=a=secret")
		const again = "201 POST: 5 Location=/charges/1 X-Order=7 Idempotent-Replayed=true"
		want(t, "a repeat", post(h, "/charges", "5", key...), again)
		want(t, "without quotes", post(h, "/charges", "5", "Idempotency-Key", "7f3a", "Authorization", "ann"), again)
		s.Stop(t)
		want(t, "without lapse", post(h, "/charges", "5", key...), "503 try again")
		s.Start(t)
		h = api(t, s, charge)
		time.Sleep(time.Until(began.Add(keep - time.Second)))
		want(t, "just before the end, after a restart", post(h, "/charges", "5", key...), again)
		want(t, "another body", post(h, "/charges", "50", key...), "422 ")
		want(t, "another path", post(h, "/refunds", "5", key...), "422 ")
		want(t, "another caller", post(h, "/charges", "5", "Idempotency-Key", "7f3a", "Authorization", "bob"), "201 POST: 5 Location=/charges/2")
		time.Sleep(time.Until(began.Add(keep)))
		want(t, "at the end", post(h, "/charges", "5", key...), "201 POST: 5 Location=/charges/3")
		if ran != 3 {
			t.Errorf("it ran %d times", ran)
		}
	})
}

// TestCrash: the key of a holder that has crashed, or works for too long, is free at its
// deadline. What the holder stores later changes nothing.
func TestCrash(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		keys, err := OpenKeys(t.Context(), s.Client(t), limit, keep)
		check(t, err)
		time.Sleep(700 * time.Millisecond) // the deadline counts from the second before
		began := time.Now()
		dead, _, err := keys.Begin(t.Context(), "k", "a")
		check(t, err)
		for time.Since(began) < limit-time.Second {
			if _, _, err := keys.Begin(t.Context(), "k", "a"); err != ErrRunning {
				t.Fatalf("%v after the beginning: %v", time.Since(began), err)
			}
			if _, _, err := keys.Begin(t.Context(), "k", "b"); err != ErrOther {
				t.Fatalf("with another print: %v", err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(300 * time.Millisecond)
		if err := keys.Complete(t.Context(), dead, Reply{}); !errors.Is(err, client.ErrDocumentNotFound) {
			t.Errorf("completed after the deadline: %v", err)
		}
		next, _, err := keys.Begin(t.Context(), "k", "a")
		check(t, err)
		for what, err := range map[string]error{"completes": keys.Complete(t.Context(), dead, Reply{}), "releases": keys.Release(t.Context(), dead)} {
			if !errors.Is(err, client.ErrPreconditionFailed) {
				t.Errorf("the dead holder %s the key of the next: %v", what, err)
			}
		}
		check(t, keys.Complete(t.Context(), next, Reply{Status: 201}))
		if _, r, err := keys.Begin(t.Context(), "k", "a"); err != nil || r.Status != 201 {
			t.Errorf("got %v, %v", r, err)
		}
		time.Sleep(time.Until(next.Modified.Add(keep)))
		_, _, err = keys.Begin(t.Context(), "k", "b")
		check(t, err)
	})
}

// TestRuns: what becomes of requests that fail, panic, take long, or reply much, of a client
// that hangs up, and of lapse that restarts meanwhile.
func TestRuns(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		gone, hangUp := context.WithCancel(t.Context())
		ran := map[string]int{}
		h := api(t, s, func(w http.ResponseWriter, r *http.Request) {
			ran[r.URL.Path]++
			switch r.URL.Path {
			case "/fails":
				http.Error(w, "broken", http.StatusInternalServerError)
			case "/busy":
				http.Error(w, "busy", http.StatusTooManyRequests)
			case "/refuses":
				http.Error(w, "no", http.StatusConflict)
			case "/panics":
				panic(http.ErrAbortHandler)
			case "/hangs":
				<-r.Context().Done()
			case "/large":
				_, _ = w.Write(make([]byte, 2<<20))
			case "/gone":
				hangUp()
				if err := r.Context().Err(); err != nil {
					t.Error(err)
				}
			case "/restart":
				s.Stop(t)
				time.AfterFunc(5*time.Second, func() { s.Start(t) })
			}
		})
		send := func(path string) (reply string) {
			defer func() {
				if recover() != nil {
					reply = "panic"
				}
			}()
			return post(h, path, "", "Idempotency-Key", path)
		}
		for _, row := range []struct {
			path, first, repeat string
			ran                 int
		}{
			{"/fails", "500 broken", "500 broken", 2},
			{"/busy", "429 busy", "429 busy", 2},
			{"/refuses", "409 no", "409 no\n Idempotent-Replayed=true", 1},
			{"/panics", "panic", "409 the request with this key is still running", 1},
			{"/large", "200 \x00", "500 the request was done, but its reply was too large to be stored\n Idempotent-Replayed=true", 1},
			{"/restart", "200 ", "200  Idempotent-Replayed=true", 1},
		} {
			want(t, row.path, send(row.path), row.first)
			want(t, row.path+" again", send(row.path), row.repeat)
			if ran[row.path] != row.ran {
				t.Errorf("%s ran %d times, want %d", row.path, ran[row.path], row.ran)
			}
		}
		time.Sleep(limit)
		want(t, "/panics after the deadline", send("/panics"), "panic")

		began := time.Now()
		want(t, "/hangs", send("/hangs"), "200 ")
		if took := time.Since(began); took >= limit {
			t.Errorf("it may run for %v", took)
		}
		r := httptest.NewRequest("POST", "/gone", nil).WithContext(gone)
		r.Header.Set("Idempotency-Key", "/gone")
		h(httptest.NewRecorder(), r)
		want(t, "/gone again", send("/gone"), "200  Idempotent-Replayed=true")
	})
}

// TestBadInput: requests without a key, with a bad one or too much, and documents of others
// in the collection, which no worker may trip over.
func TestBadInput(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		c := s.Client(t)
		h := api(t, s, func(http.ResponseWriter, *http.Request) { t.Error("it runs") })
		for _, keys := range [][]string{{}, {""}, {`""`}, {"a", "a"}, {"a\tb"}, {"ä"}, {`"a\"b"`}, {"a\x7f"}} {
			var headers []string
			for _, key := range keys {
				headers = append(headers, "Idempotency-Key", key)
			}
			want(t, fmt.Sprintf("the keys %q", keys), post(h, "/", "", headers...), "400 send one Idempotency-Key")
		}
		want(t, "a large body", post(h, "/", strings.Repeat("x", 1<<20+1), "Idempotency-Key", "a"), "413 ")
		coll, err := c.Collection(t.Context(), "idempotency-keys")
		check(t, err)
		for _, foreign := range []struct {
			document any
			want     string
		}{{map[string]any{"print": 5}, "503 try again"}, {map[string]any{}, "422 "}, {map[string]any{"reply": "x"}, "503 try again"}} {
			_, err = client.Upsert(t.Context(), coll, hash("", "a"), foreign.document)
			check(t, err)
			want(t, fmt.Sprint(foreign.document), post(h, "/", "", "Idempotency-Key", "a"), foreign.want)
		}
		for _, times := range [][2]time.Duration{{0, keep}, {time.Second, keep}, {limit, limit}, {limit, 0}, {-limit, -1}} {
			if _, err := OpenKeys(t.Context(), c, times[0], times[1]); !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("%v: %v", times, err)
			}
		}
	})
}
