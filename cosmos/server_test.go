package cosmos_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/cosmos"
	"github.com/lapsedb/lapse/test/harness"
)

// serve serves a gateway without databases until the test ends.
func serve(t *testing.T, a cosmos.Address) *cosmos.Server {
	t.Helper()
	g, err := cosmos.New(cosmos.Options{})
	check(t, err)
	s, err := a.Listen()
	check(t, err)
	t.Cleanup(s.Serve(g, slog.New(slog.DiscardHandler)))
	return s
}

// port returns the port of a gateway.
func port(t *testing.T, s *cosmos.Server) string {
	t.Helper()
	u, err := url.Parse(s.URL)
	check(t, err)
	return u.Port()
}

// TestLocalhost: localhost listens on 127.0.0.1 and, where the machine has it, on ::1 at the
// same port, with a certificate for all names of loopback.
func TestLocalhost(t *testing.T) {
	trusted := filepath.Join(t.TempDir(), "cert.pem")
	s := serve(t, cosmos.Address{URL: "https://localhost:0", Hosts: []string{"gateway.example"}, CertOut: trusted})
	hosts := []string{"127.0.0.1"}
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = l.Close()
		hosts = append(hosts, "::1")
	}
	text, err := os.ReadFile(trusted)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatalf("%s, %v", text, err)
	}
	for _, host := range hosts {
		for _, name := range []string{"localhost", "127.0.0.1", "::1", "gateway.example"} {
			conn, err := tls.Dial("tcp", net.JoinHostPort(host, port(t, s)), &tls.Config{RootCAs: roots, ServerName: name})
			if err != nil {
				t.Errorf("%s as %s: %v", host, name, err)
				continue
			}
			_ = conn.Close()
		}
	}
	if conn, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", port(t, s)), &tls.Config{RootCAs: roots, ServerName: "localhost", MaxVersion: tls.VersionTLS11}); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 is served")
	}
}

// TestReload: the files of the certificate are read again, and one that cannot be used leaves
// the one before.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	a := cosmos.Address{URL: "https://127.0.0.1:0", CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), CertOut: filepath.Join(dir, "out.pem")}
	first, key := harness.Certificate(t, 1)
	write(t, a.CertFile, first)
	write(t, a.KeyFile, key)
	s := serve(t, a)
	present := func(serial int64) {
		t.Helper()
		conn, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", port(t, s)), &tls.Config{InsecureSkipVerify: true})
		check(t, err)
		defer conn.Close()
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != serial {
			t.Errorf("certificate %d, want %d", got, serial)
		}
	}
	present(1)
	second, key := harness.Certificate(t, 2)
	write(t, a.CertFile, second)
	if err := s.Reload(); err == nil {
		t.Error("a certificate with the key of another one is used")
	}
	present(1)
	write(t, a.KeyFile, key)
	check(t, s.Reload())
	present(2)
	if out, err := os.ReadFile(a.CertOut); err != nil || !bytes.Equal(out, second) {
		t.Errorf("--cosmos-cert-out has %s, %v", out, err)
	}
	third, key := harness.Certificate(t, 3)
	write(t, a.CertFile, third)
	write(t, a.KeyFile, key)
	check(t, os.Remove(a.CertOut))
	check(t, os.Mkdir(a.CertOut, 0o700))
	if err := s.Reload(); err == nil {
		t.Error("a certificate that clients cannot read is used")
	}
	present(2)
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	check(t, os.WriteFile(file, text, 0o600))
}

// TestCreatesNoDatabase: where databases are kept, creating one that the gateway does not reach
// is a 403.
func TestCreatesNoDatabase(t *testing.T) {
	g, err := cosmos.New(cosmos.Options{
		Connect:   func(string) (*client.Client, func(), error) { return nil, nil, client.ErrDatabaseNotFound },
		Databases: func(context.Context) ([]string, error) { return nil, nil },
	})
	check(t, err)
	r := httptest.NewRequest(http.MethodPost, "http://localhost/dbs", strings.NewReader(`{"id":"other"}`))
	r.Header.Set("Authorization", url.QueryEscape("type=aad&ver=1.0&sig=a"))
	w := httptest.NewRecorder()
	if g.ServeHTTP(w, r); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "other is not served") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
