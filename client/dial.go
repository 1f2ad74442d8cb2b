package client

import (
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// loginPause is how long Dial waits before it tries a refused login again. A NATS server
// that reloads its users refuses everybody for some milliseconds.
const loginPause = 250 * time.Millisecond

// Dial calls connect, which passes option to nats.Connect as the last one, and returns its
// result, that of a second call if NATS refuses the login. But its error is ErrBadRequest
// if an address is not one of NATS, before anything is dialed, and ErrUnavailable with
// nats.ErrNoInfoReceived if a server speaks HTTP or another protocol.
//
// To nats.go a wrong port, such as that of a web server, is a time-out: the server waits
// for the client to speak first.
func Dial(connect func(option nats.Option) (*nats.Conn, error)) (*nats.Conn, error) {
	var servers []string
	option := func(o *nats.Options) error {
		servers = o.Servers
		return checkServers(servers)
	}
	nc, err := connect(option)
	if errors.Is(err, nats.ErrAuthorization) {
		time.Sleep(loginPause)
		nc, err = connect(option)
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Timeout() && failed.Op == "read" {
		err = explainSilence(servers, err)
	} else if errors.Is(err, nats.ErrNoInfoReceived) {
		err = notNATS(servers, "something else")
	}
	return nc, err
}

// schemes are those of the addresses that nats.go connects to.
var schemes = []string{"nats", "tls", "ws", "wss"}

func checkServers(servers []string) error {
	for _, address := range servers {
		u, err := parseServer(address)
		if failed, ok := errors.AsType[*url.Error](err); ok {
			return ErrBadRequest.With("the address of the NATS server is malformed: %v: use nats://HOST:PORT", failed.Err) // without the password
		}
		if !slices.Contains(schemes, u.Scheme) {
			return ErrBadRequest.With("%s is not the address of a NATS server: use nats://HOST:PORT, or tls, ws or wss", u.Redacted())
		}
	}
	return nil
}

// parseServer reads an address as nats.go does.
func parseServer(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") {
		address = "nats://" + address
	}
	return url.Parse(address)
}

// answerTimeout bounds the wait for the answer of a server that did not send INFO.
var answerTimeout = time.Second

// explainSilence returns notNATS if every server answers HTTP or another protocol, else
// err: the server may be busy.
func explainSilence(servers []string, err error) error {
	what := ""
	for _, address := range servers {
		switch answer := ask(address); {
		case answer == "" || strings.HasPrefix(answer, "INFO"):
			return err
		case strings.HasPrefix(answer, "HTTP"):
			what = "HTTP"
		default:
			what = "something else"
		}
	}
	return notNATS(servers, what)
}

// ask returns the first bytes that a server sends, at the latest when it receives a
// request of HTTP; "" for none.
func ask(address string) string {
	u, err := parseServer(address)
	if err != nil || !slices.Contains(schemes[:2], u.Scheme) {
		return "" // a WebSocket answers HTTP
	}
	port := u.Port()
	if port == "" {
		port = "4222"
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(u.Hostname(), port), answerTimeout)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTimeout))
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	answer := make([]byte, len("HTTP"))
	n, _ := io.ReadFull(conn, answer)
	return string(answer[:n])
}

func notNATS(servers []string, what string) error {
	return &failure{cause: nats.ErrNoInfoReceived, coded: ErrUnavailable.With("the server at %s speaks %s, not NATS: check the port; NATS has 4222 by default", Redacted(servers), what)}
}

// Redacted returns server addresses without their passwords and tokens, for messages.
func Redacted(servers []string) string {
	all := make([]string, 0, len(servers))
	for _, address := range servers {
		shown := "the address given"
		if u, err := parseServer(address); err == nil {
			if _, password := u.User.Password(); u.User != nil && !password {
				u.User = url.User("xxxxx") // a token
			}
			shown = u.Redacted()
		}
		all = append(all, shown)
	}
	return strings.Join(all, ",")
}
