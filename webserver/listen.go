package webserver

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"syscall"
)

// ErrTaken is the error of Listen for an address in use. It has no "already": programs that
// wait for "ready" would find it there.
var ErrTaken = errors.New("another program listens there")

// Listen is net.Listen, but for ErrTaken.
func Listen(network, address string) (net.Listener, error) {
	listener, err := net.Listen(network, address)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = ErrTaken
	}
	return listener, err
}

// Hostname returns a Host header without its port, in lower case; "" for what is no host.
// For [::1]:8280 it is ::1, and for a/b, user@host or an empty header "". Callers compare
// it with names that they accept; what is no host must match none.
func Hostname(host string) string {
	u, err := url.Parse("//" + host)
	if err != nil || u.Host != host || strings.ContainsAny(host, "/@?#") {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
