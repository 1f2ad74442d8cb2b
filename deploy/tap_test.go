package deploy_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tap is a proxy between clients and a node that records who uses which subject.
type tap struct {
	mu        sync.Mutex
	published map[string]map[string]bool // by user and subject
	listened  map[string]map[string]bool
}

// open starts a tap for each node and returns their URLs.
func (tp *tap) open(t *testing.T, c *cluster) (urls []string) {
	t.Helper()
	tp.published, tp.listened = map[string]map[string]bool{}, map[string]map[string]bool{}
	cert, err := tls.LoadX509KeyPair(filepath.Join(secrets, "nats-1", "cert.pem"), filepath.Join(secrets, "nats-1", "key.pem"))
	check(t, err)
	pem, err := os.ReadFile(filepath.Join(secrets, "ca.pem"))
	check(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for _, url := range c.urls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		t.Cleanup(func() { l.Close() })
		to := strings.TrimPrefix(url, "tls://")
		running.Go(func() {
			for {
				client, err := l.Accept()
				if err != nil {
					return
				}
				running.Go(func() {
					defer client.Close()
					node, err := net.Dial("tcp", to)
					if err != nil {
						return
					}
					defer node.Close()
					// A connection begins with the INFO line, before TLS.
					info, err := bufio.NewReader(node).ReadString('\n')
					if err != nil {
						return
					}
					if _, err := io.WriteString(client, info); err != nil {
						return
					}
					down := tls.Server(client, &tls.Config{Certificates: []tls.Certificate{cert}})
					up := tls.Client(node, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
					done := make(chan struct{})
					go func() {
						defer close(done)
						_, _ = io.Copy(down, up)
						client.Close()
					}()
					_ = tp.carry(up, bufio.NewReader(down))
					node.Close()
					<-done
				})
			}
		})
		urls = append(urls, "tls://"+l.Addr().String())
	}
	return urls
}

// carry forwards a client's protocol lines to the node, and records them.
func (tp *tap) carry(node io.Writer, client *bufio.Reader) error {
	user := ""
	for {
		line, err := client.ReadString('\n')
		if err != nil {
			return err
		}
		body := 0
		switch words := strings.Fields(line); {
		case len(words) < 2:
		case words[0] == "CONNECT":
			var who struct{ Nkey string }
			if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "CONNECT ")), &who); err != nil {
				return err
			}
			user = userOf(who.Nkey)
		case words[0] == "SUB":
			tp.note(tp.listened, user, words[1])
		case words[0] == "PUB" || words[0] == "HPUB":
			tp.note(tp.published, user, words[1])
			if body, err = strconv.Atoi(words[len(words)-1]); err != nil {
				return err
			}
			body += len("\r\n")
		}
		if _, err := io.WriteString(node, line); err != nil {
			return err
		}
		if _, err := io.CopyN(node, client, int64(body)); err != nil {
			return err
		}
	}
}

func (tp *tap) note(where map[string]map[string]bool, user, subject string) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if where[user] == nil {
		where[user] = map[string]bool{}
	}
	where[user][subject] = true
}

// userOf returns the user with a public nkey.
func userOf(nkey string) string {
	for name, value := range environment {
		if value == nkey {
			return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "NKEY_")), "_", "-")
		}
	}
	return "nobody"
}

// used reports whether a user used any subject that a right covers.
func (tp *tap) used(where map[string]map[string]bool, user, right string) bool {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for subject := range where[user] {
		if covers(right, subject) {
			return true
		}
	}
	return false
}

func covers(right, subject string) bool {
	r, s := strings.Split(right, "."), strings.Split(subject, ".")
	for i, token := range r {
		switch {
		case i == len(s):
			return false
		case token == ">":
			return true
		case token != "*" && token != s[i]:
			return false
		}
	}
	return len(r) == len(s)
}
