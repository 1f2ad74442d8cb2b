package attack

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// Leaf is the other end of a leaf node connection. The server does not hold it to the
// rules for reply subjects that it has for clients.
type Leaf struct {
	conn net.Conn
	pong chan struct{} // of a Flush
	done chan struct{}

	mu  sync.Mutex // held while writing
	err error      // the first
}

// DialLeaf connects to the leaf node port of a server.
func DialLeaf(addr, user, password string) (*Leaf, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &Leaf{conn: conn, pong: make(chan struct{}, 1), done: make(chan struct{})}
	in := bufio.NewReader(conn)
	if _, err := in.ReadString('\n'); err != nil { // INFO
		conn.Close()
		return nil, err
	}
	l.write(`CONNECT {"user":%q,"pass":%q,"name":"leaf","server_id":"leaf","headers":true,"version":"2.15.3","protocol":1}`+"\r\n", user, password)
	go l.read(in)
	if err := l.Flush(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// read answers pings. The messages that the server forwards come to nothing.
func (l *Leaf) read(in *bufio.Reader) {
	defer close(l.done)
	for {
		line, err := in.ReadString('\n')
		switch {
		case err != nil:
			return
		case strings.HasPrefix(line, "PING"):
			l.write("PONG\r\n")
		case strings.HasPrefix(line, "PONG"):
			l.pong <- struct{}{}
		case strings.HasPrefix(line, "-ERR"):
			l.fail(fmt.Errorf("leaf: %s", strings.TrimSpace(line)))
		}
	}
}

func (l *Leaf) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

func (l *Leaf) write(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := fmt.Fprintf(l.conn, format, args...); err != nil && l.err == nil {
		l.err = err
	}
}

// PublishMsg sends a message, with any reply subject. Flush returns the errors.
func (l *Leaf) PublishMsg(m *nats.Msg) error {
	var header strings.Builder
	if len(m.Header) > 0 {
		header.WriteString("NATS/1.0\r\n")
		for name, values := range m.Header {
			for _, v := range values {
				fmt.Fprintf(&header, "%s: %s\r\n", name, v)
			}
		}
		header.WriteString("\r\n")
	}
	if reply := strings.TrimSpace(m.Subject + " " + m.Reply); header.Len() > 0 {
		l.write("HMSG %s %d %d\r\n%s%s\r\n", reply, header.Len(), header.Len()+len(m.Data), header.String(), m.Data)
	} else {
		l.write("LMSG %s %d\r\n%s\r\n", reply, len(m.Data), m.Data)
	}
	return nil
}

// Flush returns when the server has handled all that was sent.
func (l *Leaf) Flush() error {
	l.write("PING\r\n")
	select {
	case <-l.pong:
	case <-l.done:
		l.fail(fmt.Errorf("leaf: the server has closed the connection"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close ends the connection.
func (l *Leaf) Close() {
	l.conn.Close()
	<-l.done
}
