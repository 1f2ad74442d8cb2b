package attack

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Client is a raw NATS connection that sends requests without waiting for replies, and
// reads replies only in Read. One goroutine may send while another reads.
type Client struct {
	conn  net.Conn
	out   *bufio.Writer
	in    *bufio.Reader
	inbox string
	sent  int
}

// Dial connects to a NATS server at HOST:PORT or at a URL, without credentials.
func Dial(address string) (*Client, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "nats://"))
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, out: bufio.NewWriterSize(conn, 64<<10), in: bufio.NewReaderSize(conn, 64<<10),
		inbox: "_INBOX." + rand.Text() + "."}
	fmt.Fprintf(c.out, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\nSUB %s* 1\r\nPING\r\n", c.inbox)
	if err = c.out.Flush(); err == nil {
		err = c.until("PONG")
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("attack: %s: %w", address, err)
	}
	return c, nil
}

func (c *Client) until(line string) error {
	for {
		got, err := c.in.ReadString('\n')
		if err != nil || strings.TrimSpace(got) == line {
			return err
		}
	}
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Send sends request number Sent. It may be buffered until Flush.
func (c *Client) Send(subject string, body []byte) error {
	if err := c.publish(subject, c.inbox+strconv.Itoa(c.sent), body); err != nil {
		return err
	}
	c.sent++
	return nil
}

// Publish publishes without a reply subject.
func (c *Client) Publish(subject string, body []byte) error { return c.publish(subject, "", body) }

func (c *Client) publish(subject, reply string, body []byte) error {
	var line [512]byte
	b := append(append(append(line[:0], "PUB "...), subject...), ' ')
	b = strconv.AppendInt(append(append(b, reply...), ' '), int64(len(body)), 10)
	if _, err := c.out.Write(append(b, "\r\n"...)); err != nil {
		return err
	}
	if _, err := c.out.Write(body); err != nil {
		return err
	}
	_, err := c.out.WriteString("\r\n")
	return err
}

// Subscribe adds a subscription, to a subject that gets no messages.
func (c *Client) Subscribe(subject string, sid int) error {
	_, err := fmt.Fprintf(c.out, "SUB %s %d\r\n", subject, sid)
	return err
}

// Ping returns when the server has read all that was sent.
func (c *Client) Ping() error {
	fmt.Fprint(c.out, "PING\r\n")
	if err := c.out.Flush(); err != nil {
		return err
	}
	return c.until("PONG")
}

// Sent returns the number of requests sent.
func (c *Client) Sent() int { return c.sent }

// Flush writes buffered requests to the connection.
func (c *Client) Flush() error { return c.out.Flush() }

// SetDeadline sets the time from which reads and writes fail.
func (c *Client) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// Reply is a reply to a request.
type Reply struct {
	N    int    // the request's number
	Code int    // Lapse-Status; 0 if there is none
	Body []byte // valid until the next Read
}

// Read reads the next reply. It returns io.EOF, or another error of the connection, when
// the server has closed it.
func (c *Client) Read() (r Reply, err error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return r, err
		}
		fields := bytes.Fields(line)
		switch {
		case len(fields) == 0 || !bytes.HasSuffix(fields[0], []byte("MSG")):
			if bytes.HasPrefix(line, []byte("-ERR")) {
				return r, fmt.Errorf("attack: the server says %s", bytes.TrimSpace(line))
			}
			continue
		case len(fields) < 4:
			return r, fmt.Errorf("attack: %q", line)
		}
		if r.N, err = strconv.Atoi(string(bytes.TrimPrefix(fields[1], []byte(c.inbox)))); err != nil {
			return r, err
		}
		total, err := strconv.Atoi(string(fields[len(fields)-1]))
		if err != nil {
			return r, err
		}
		header := 0
		if fields[0][0] == 'H' {
			if header, err = strconv.Atoi(string(fields[len(fields)-2])); err != nil {
				return r, err
			}
		}
		message := make([]byte, total+2)
		if _, err := io.ReadFull(c.in, message); err != nil {
			return r, err
		}
		r.Body = message[header:total]
		const status = "Lapse-Status: "
		if at := bytes.Index(message[:header], []byte(status)); at >= 0 && at+len(status)+3 <= header {
			r.Code, err = strconv.Atoi(string(message[at+len(status) : at+len(status)+3]))
		}
		return r, err
	}
}
