package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestStatusOfAnotherServer: a server other than lapse gives an error that says so,
// whether it speaks first, as NATS does, or stays silent.
func TestStatusOfAnotherServer(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(net.Conn)
		says  string
	}{
		"speaks first": {func(conn net.Conn) { io.WriteString(conn, "INFO {\"max_payload\":1}\r\n") }, "does not answer in HTTP"},
		"hangs up":     {func(net.Conn) {}, "is not lapse"},
		"says nothing": {func(conn net.Conn) { io.Copy(io.Discard, conn) }, "no lapse answers at"},
		"another page": {func(conn net.Conn) { io.WriteString(conn, "HTTP/1.0 404 Not Found\r\n\r\n") }, "answers 404"},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					c.serve(conn)
					conn.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, conn) // a close with unread bytes is a reset
					conn.Close()
				}
			}()
			timeout := time.Minute
			if name == "says nothing" {
				timeout = 100 * time.Millisecond
			}
			_, err = statusOf(t.Context(), listener.Addr().String(), "", timeout)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v, want a line with %q", err, c.says)
			}
		})
	}
}
