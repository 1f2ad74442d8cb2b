package test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapsedb/lapse/cosmos"
	"github.com/lapsedb/lapse/test/harness"
)

// users is a configuration of NATS with which everyone has to log in.
const users = `accounts { APP { users: [{ user: app, password: secret }] } }`

// TestGatewayOfServerWithUsers: with a key of its own, a gateway serves the databases of a
// server with users to those who have the key; SIGHUP reads its certificate again.
func TestGatewayOfServerWithUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	own := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 64)))
	first, firstKey := harness.Certificate(t, 1)
	cert, key := file("cert.pem", string(first)), file("key.pem", string(firstKey))
	s := harness.Serve(t, "--nats-config", file("nats.conf", users), "--console", "off", "--cosmos", "https://127.0.0.1:0",
		"--cosmos-key-file", file("account.key", own), "--cosmos-cert", cert, "--cosmos-cert-key", key)
	address := gatewayOf(t, s)
	if status, text := listDatabases(t, address, own); status != 200 || !strings.Contains(text, `"id":"main"`) {
		t.Errorf("with the key: %d %s", status, text)
	}
	if status, text := listDatabases(t, address, cosmos.WellKnownKey); status != 401 {
		t.Errorf("with the well-known key: %d %s", status, text)
	}
	second, secondKey := harness.Certificate(t, 2)
	file("cert.pem", string(second))
	file("key.pem", string(secondKey))
	s.Signal(syscall.SIGHUP)
	harness.Eventually(t, "the new certificate is presented", func() bool { return presented(t, address) == 2 })
}

// TestGatewayInCI: the service that docs/cosmos.md shows starts, and answers under its name.
func TestGatewayInCI(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/cosmos.md")
	check(t, err)
	command := regexp.MustCompile(`command: \[(.*)\]\n`).FindSubmatch(page)
	if command == nil {
		t.Fatal("the page has no command of a service")
	}
	words := strings.NewReplacer(`"`, "", "0.0.0.0:4222", "127.0.0.1:0", "0.0.0.0:8081", "0.0.0.0:0").Replace(string(command[1]))
	cmd := harness.Command(t, strings.Split(words, ", ")...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	check(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	var ready struct{ Cosmos string }
	check(t, json.NewDecoder(out).Decode(&ready))
	for host, want := range map[string]int{"lapse:8081": 200, "other:8081": 403} {
		if status, text := listDatabasesAs(t, ready.Cosmos, cosmos.WellKnownKey, host); status != want {
			t.Errorf("%s: %d %s", host, status, text)
		}
	}
}

// gatewayOf returns the address of the gateway in the ready line.
func gatewayOf(t *testing.T, s *harness.Server) string {
	t.Helper()
	found := regexp.MustCompile(`SDKs of Cosmos DB: (https?://[^\s"]+)`).FindStringSubmatch(s.Stderr())
	if found == nil {
		t.Fatalf("no gateway: %s", s.Stderr())
	}
	return found[1]
}

// insecure trusts the certificates of tests.
var insecure = &tls.Config{InsecureSkipVerify: true}

// listDatabases asks a gateway for its databases, signed with an account key.
func listDatabases(t *testing.T, address, key string) (status int, text string) {
	t.Helper()
	return listDatabasesAs(t, address, key, "")
}

// listDatabasesAs is listDatabases with a Host header; "" for that of the address.
func listDatabasesAs(t *testing.T, address, key, host string) (status int, text string) {
	t.Helper()
	date := time.Now().UTC().Format(http.TimeFormat)
	secret, err := base64.StdEncoding.DecodeString(key)
	check(t, err)
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "get\ndbs\n\n%s\n\n", strings.ToLower(date))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/dbs", nil)
	check(t, err)
	r.Host = host
	r.Header.Set("X-Ms-Date", date)
	r.Header.Set("Authorization", url.QueryEscape("type=master&ver=1.0&sig="+base64.StdEncoding.EncodeToString(mac.Sum(nil))))
	transport := &http.Transport{TLSClientConfig: insecure, DisableKeepAlives: true}
	answer, err := transport.RoundTrip(r)
	check(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	check(t, err)
	return answer.StatusCode, string(body)
}

// presented returns the serial number of the certificate at an address.
func presented(t *testing.T, address string) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(address, "https://"), insecure)
	check(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}
