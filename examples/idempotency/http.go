package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Handler calls next for the first request with an Idempotency-Key of a caller, and answers
// its repeats, after the draft of the IETF. If the client hangs up, next goes on.
func (k *Keys) Handler(caller func(*http.Request) string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := strings.Trim(strings.Join(r.Header["Idempotency-Key"], "\x00"), `"`)
		if key == "" || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
			http.Error(w, "send one Idempotency-Key, such as a UUID in quotes", http.StatusBadRequest)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body has more than 1 MiB, or is incomplete", http.StatusRequestEntityTooLarge)
			return
		}
		ctx := context.WithoutCancel(r.Context())
		running, cancel := context.WithTimeout(ctx, k.run-time.Second) // a ttl counts from a whole second
		defer cancel()
		taken, reply, err := k.Begin(ctx, hash(caller(r), key), hash(r.Method, r.URL.RequestURI(), string(body)))
		switch {
		case errors.Is(err, ErrOther):
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		case errors.Is(err, ErrRunning):
			http.Error(w, err.Error(), http.StatusConflict)
		case err != nil:
			slog.Error("no idempotency key is taken", "error", err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
		case reply != nil:
			w.Header().Set("Idempotent-Replayed", "true")
			reply.send(w)
		default:
			r.Body = io.NopCloser(bytes.NewReader(body))
			first := recorder{header: http.Header{}}
			next(&first, r.WithContext(running)) // after a panic, as after a crash, the key is free at its deadline
			first.WriteHeader(http.StatusOK)
			if err := k.store(ctx, taken, first.Reply); err != nil {
				slog.Error("a repeat may run again", "key", taken.ID, "error", err)
			}
			first.send(w)
		}
	}
}

// store ends a request. The key of one that failed for a reason that may pass is free.
func (k *Keys) store(ctx context.Context, taken client.Item[Request], r Reply) error {
	if r.Status >= 500 || r.Status == http.StatusTooManyRequests {
		return k.Release(ctx, taken)
	}
	r.Header = maps.Clone(r.Header)
	r.Header.Del("Set-Cookie") // a secret, which does not belong in the log
	err := k.Complete(ctx, taken, r)
	if errors.Is(err, client.ErrTooLarge) {
		text := "the request was done, but its reply was too large to be stored\n"
		err = k.Complete(ctx, taken, Reply{Status: http.StatusInternalServerError, Body: []byte(text)})
	}
	return err
}

func (r Reply) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.Header)
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body) // or the client has gone
}

// hash differs for different parts: only the last one can contain a zero byte.
func hash(parts ...string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(parts, "\x00"))))
}

// recorder is a ResponseWriter that keeps the reply.
type recorder struct {
	Reply
	header http.Header
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.Status == 0 && status >= 200 {
		r.Status, r.Reply.Header = status, r.header.Clone()
	}
}

func (r *recorder) Write(data []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	r.Body = append(r.Body, data...)
	return len(data), nil
}
