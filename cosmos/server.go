package cosmos

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/webserver"
)

// Address says where a gateway listens, and with which certificate.
type Address struct {
	URL      string   `flag:"serve the databases to programs with an SDK of Azure Cosmos DB at [URL], http://HOST:PORT or https://HOST:PORT"`
	Hosts    []string `flag:"let the gateway answer under the host [NAME], too; repeatable"` // they are in the certificate that is made
	CertFile string   `flag:"present the certificate in [FILE] at https instead of one made at the start; SIGHUP reads it again"`
	KeyFile  string   `flag:"[FILE] with the key of --cosmos-cert"`
	CertOut  string   `flag:"write the certificate that programs have to trust to [FILE]"`
}

// Server is a gateway that listens.
type Server struct {
	URL       string // with the port, without a slash at the end
	Host      string // of the URL
	address   Address
	listeners []net.Listener
	certified atomic.Pointer[tls.Certificate]
}

// limits suit SDKs, which open a connection for each request that is under way at once, and keep
// it. Half of the connections may be without a request.
var limits = webserver.Limits{Connections: 4096, Idle: 2 * time.Minute}

// ParseURL returns the scheme, host and port of a gateway's URL.
func ParseURL(text string) (scheme, host, port string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return "", "", "", fmt.Errorf("%q is no address of a gateway: use http://HOST:PORT or https://HOST:PORT, like https://localhost:8081", text)
	}
	return u.Scheme, u.Hostname(), u.Port(), nil
}

// Listen listens, so that a wrong address is an error before anything starts. Its error says
// what to do. Serve begins to answer. What listens meanwhile keeps connections waiting
// instead of refusing them.
func (a Address) Listen() (_ *Server, err error) {
	scheme, host, port, err := ParseURL(a.URL)
	if err != nil {
		return nil, err
	}
	s := &Server{address: a, Host: host}
	if scheme == "https" {
		if err := s.certify(host); err != nil {
			return nil, err
		}
	}
	if s.listeners, err = listen(host, port); err != nil {
		return nil, fmt.Errorf("cannot serve the gateway at %s: %w: choose another address", a.URL, err)
	}
	shown := host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		shown = "127.0.0.1"
	}
	s.URL = scheme + "://" + net.JoinHostPort(shown, strconv.Itoa(s.listeners[0].Addr().(*net.TCPAddr).Port))
	return s, nil
}

// listenTries bounds the tries to find a port that is free at both addresses of localhost.
const listenTries = 10

// listen listens at a host; localhost is 127.0.0.1 and, if the machine has it, ::1. With
// port 0 the second address gets the port of the first, which somebody else may have: then
// it tries again.
func listen(host, port string) ([]net.Listener, error) {
	if host != "localhost" {
		l, err := webserver.Listen("tcp", net.JoinHostPort(host, port))
		return []net.Listener{l}, err
	}
	for try := 1; ; try++ {
		four, err := webserver.Listen("tcp4", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			return nil, err
		}
		six, err := webserver.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(four.Addr().(*net.TCPAddr).Port)))
		switch {
		case err == nil:
			return []net.Listener{four, six}, nil
		case !errors.Is(err, webserver.ErrTaken):
			return []net.Listener{four}, nil // the machine has no ::1
		}
		_ = four.Close()
		if port != "0" || try == listenTries {
			return nil, err
		}
	}
}

// Close ends a server that does not serve yet.
func (s *Server) Close() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
}

// Serve serves a gateway until stop is called, which closes it, too.
func (s *Server) Serve(g *Gateway, logger *slog.Logger) (stop func()) {
	limits := limits
	if s.certified.Load() != nil {
		limits.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certified.Load(), nil }}
	}
	var stops []func()
	for _, l := range s.listeners {
		stops = append(stops, limits.Serve(l, g, "cosmos", logger))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
		g.Close()
	}
}

// certify reads or makes the certificate, and writes it for clients. CertOut is written
// before the ready line, so that a script can read it after that.
func (s *Server) certify(host string) error {
	certificate, trusted, err := s.address.certificate(host)
	if err != nil {
		return err
	}
	if s.address.CertOut != "" {
		if err := os.WriteFile(s.address.CertOut, trusted, 0o644); err != nil { // it is public
			return fmt.Errorf("--cosmos-cert-out: %w", err)
		}
	}
	s.certified.Store(certificate)
	return nil
}

// Reload reads the files of the certificate again. One that was made stays. Connections
// that are open keep the old one; new ones get the new one.
func (s *Server) Reload() error {
	if s.address.CertFile == "" || s.certified.Load() == nil {
		return nil
	}
	return s.certify(s.Host)
}

// certificate returns the certificate and what clients have to trust, in PEM.
func (a Address) certificate(host string) (*tls.Certificate, []byte, error) {
	if a.CertFile == "" {
		return makeCertificate(append([]string{"localhost", "127.0.0.1", "::1", host}, a.Hosts...), time.Now())
	}
	text, err := os.ReadFile(a.CertFile)
	key, keyErr := os.ReadFile(a.KeyFile)
	if err = cmp.Or(err, keyErr); err != nil {
		return nil, nil, fmt.Errorf("--cosmos-cert: %w", err)
	}
	pair, err := tls.X509KeyPair(text, key)
	if err != nil {
		return nil, nil, fmt.Errorf("--cosmos-cert %s, --cosmos-cert-key %s: %w", a.CertFile, a.KeyFile, err)
	}
	return &pair, text, nil
}
