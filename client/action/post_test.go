package action

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/prometheus/client_golang/prometheus"
)

var discard = slog.New(slog.DiscardHandler)

// anEvent returns an expiry.
func anEvent(t *testing.T) *client.Event {
	t.Helper()
	e := new(client.Event)
	if err := json.Unmarshal([]byte(`{"seq":7,"time":"2000-01-01T00:00:00.000Z","type":"DocumentExpired","collection":"trials","id":"ann","previous":3,"deadline":946684800,"ttl":60,"rule":"document","body":{"address":"ann@example.net"}}`), e); err != nil {
		t.Fatal(err)
	}
	return e
}

// dialing returns a dialer whose every connection is served by serve, in memory.
func dialing(serve func(c net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
				go func() { _, _ = io.Copy(io.Discard, far) }()
				serve(far)
			}
		}()
		return near, nil
	}
}

// TestPostReplies: 2xx is success, whatever follows it; all else fails, within the time of
// the try. No error has the URL's login, path or query.
func TestPostReplies(t *testing.T) {
	reply := func(text string) func(net.Conn) {
		return func(c net.Conn) { _, _ = io.WriteString(c, text) }
	}
	wait := func(d time.Duration, then func(net.Conn)) func(net.Conn) {
		return func(c net.Conn) { time.Sleep(d); then(c) }
	}
	endless := func(c net.Conn) {
		for _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err == nil; _, err = c.Write(make([]byte, 4096)) {
		}
	}
	drip := func(c net.Conn) {
		for _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err == nil; _, err = c.Write([]byte{'.'}) {
			time.Sleep(time.Second)
		}
	}
	headers := func(c net.Conn) {
		for _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"); err == nil; _, err = io.WriteString(c, "X-More: "+strings.Repeat("x", 4000)+"\r\n") {
		}
	}
	const empty = "\r\nContent-Length: 0\r\n\r\n"
	for name, test := range map[string]struct {
		serve func(net.Conn)
		want  string // of the error; "" for success
		takes time.Duration
	}{
		"200":                    {reply("HTTP/1.1 200 OK" + empty), "", 0},
		"204":                    {reply("HTTP/1.1 204 No Content\r\n\r\n"), "", 0},
		"a body that is cut":     {reply("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), "", 0},
		"a body without end":     {endless, "", 0},
		"a slow body":            {drip, "", 30 * time.Second},
		"slow":                   {wait(29*time.Second, reply("HTTP/1.1 200 OK"+empty)), "", 29 * time.Second},
		"20 minutes":             {wait(20*time.Minute, reply("HTTP/1.1 200 OK"+empty)), "it took longer than 30s", 30 * time.Second},
		"a status that is cut":   {reply("HTTP/1.1 20"), "malformed", 0},
		"closed":                 {reply(""), "EOF", 0},
		"headers without end":    {headers, "headers exceeded", 0},
		"a redirect":             {reply("HTTP/1.1 302 Found\r\nLocation: https://else.example.net/" + empty), "302 Found", 0},
		"an odd status":          {reply("HTTP/1.1 299 \x1b[31mok" + empty), "", 0},
		"a status with a secret": {reply("HTTP/1.1 500 hunter2" + empty), "500 Internal Server Error", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := NewPost("http://shop:hunter2@hooks.example.net/token?key=token", "main", "secret")
				if err != nil {
					t.Fatal(err)
				}
				transport := p.client.Transport.(*http.Transport)
				transport.DialContext, transport.Proxy = dialing(test.serve), nil
				defer transport.CloseIdleConnections()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				start := time.Now()
				o := Options{Timeout: DefaultTimeout, Metrics: NewMetrics(new(client.Client), "d"), Logger: discard}
				err = o.try(ctx, p, anEvent(t))
				if took := time.Since(start); took != test.takes {
					t.Errorf("it took %v, want %v", took, test.takes)
				}
				if err == nil && test.want != "" || err != nil && (test.want == "" || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("got %v, want %q", err, test.want)
				}
				if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "token")) {
					t.Errorf("it shows a secret: %v", err)
				}
				if failures := count(t, o.Metrics.failures); (failures == 1) != (err != nil) {
					t.Errorf("%v failures are counted", failures)
				}
				time.Sleep(time.Hour) // the endpoint ends
			})
		})
	}
}

// count returns the value of a counter.
func count(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// TestEndOfTries: a try goes on for EndTimeout after the end of Run, and no longer.
func TestEndOfTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPost("http://hooks.example.net", "main", "")
		if err != nil {
			t.Fatal(err)
		}
		transport := p.client.Transport.(*http.Transport)
		transport.DialContext, transport.Proxy = dialing(func(net.Conn) { time.Sleep(time.Hour) }), nil
		ctx, cancel := context.WithCancel(t.Context())
		o := Options{Timeout: time.Hour, Metrics: NewMetrics(new(client.Client), "d"), Logger: discard}
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		if err := o.try(ctx, p, anEvent(t)); err == nil || time.Since(start) != time.Second+EndTimeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(time.Hour)
	})
}

// TestNewPost: only http and https with a host are URLs; the error has nothing of others.
func TestNewPost(t *testing.T) {
	for _, address := range []string{"", "hooks", "ftp://a/hunter2", "https://", "https:///hunter2", "http://shop:hunter2#x@a", "http://a:hunter2/", "unix:///hunter2", "https://a/\x7fhunter2", "https://a/#hunter2"} {
		if _, err := NewPost(address, "main", ""); err != ErrURL {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestSignature: a request is signed if there is a secret.
func TestSignature(t *testing.T) {
	for secret, want := range map[string]string{"": "", "s": "t=7,v1="} {
		p, err := NewPost("http://hooks.example.net", "main", secret)
		if err != nil {
			t.Fatal(err)
		}
		_, headers, err := p.request(anEvent(t), time.Unix(7, 0))
		if got := headers.Get("Lapse-Signature"); err != nil || !strings.HasPrefix(got, want) || (got == "") != (secret == "") {
			t.Errorf("%q: signature %q, %v", secret, got, err)
		}
	}
}

// TestPostVerifiesTLS: an endpoint whose certificate nobody has signed gets nothing.
func TestPostVerifiesTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it gets a request") }))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	defer server.Close()
	p, err := NewPost(server.URL, "main", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Try(t.Context(), anEvent(t)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}
