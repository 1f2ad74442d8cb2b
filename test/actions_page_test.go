package test

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// programs returns the blocks of a language in docs/actions.md.
func programs(t *testing.T, language string) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/actions.md")
	check(t, err)
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, block[1])
	}
	return blocks
}

// needs skips the test where a program is missing.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("there is no " + program)
	}
}

// TestReceiversOfThePage: the receivers of docs/actions.md accept what lapse watch sends, do
// their work once when it is sent again, and refuse a wrong or old signature.
func TestReceiversOfThePage(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]struct{ program, file, text string }{
		"Python":     {"python3", "receiver.py", programs(t, "python")[1]},
		"TypeScript": {"node", "receiver.mjs", programs(t, "ts")[0]}, // its types are inferred, so it is JavaScript, too
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs(t, run.program)
			dir, address := t.TempDir(), harness.FreeAddr(t)
			_, port, _ := net.SplitHostPort(address)
			write(t, filepath.Join(dir, run.file), run.text)
			write(t, filepath.Join(dir, "secret"), secretOfTest+"\n")
			receiver := child.Command(t, run.program, run.file)
			receiver.Dir, receiver.Env = dir, append(receiver.Env, "PORT="+port)
			r := harness.StartProcess(t, receiver, nil)
			t.Cleanup(r.Kill)
			send := func(seq, at int, secret string) (code int) {
				body := fmt.Sprintf(`{"seq":%d}`, seq)
				mac := hmac.New(sha256.New, []byte(secret))
				fmt.Fprintf(mac, "%d.%s", at, body)
				request, _ := http.NewRequest(http.MethodPost, "http://"+address, strings.NewReader(body))
				request.Header = http.Header{"Idempotency-Key": {fmt.Sprint("main-", seq)}}
				if secret != "" {
					request.Header.Set("Lapse-Signature", fmt.Sprintf("t=%d,v1=%x", at, mac.Sum(nil)))
				}
				reply, err := http.DefaultClient.Do(request)
				if err != nil {
					return 0
				}
				reply.Body.Close()
				return reply.StatusCode
			}
			now := int(time.Now().Unix())
			eventually(t, "it listens", func() bool { return send(1000001, now, secretOfTest) == 204 })
			for what, code := range map[string]int{"again": send(1000001, now, secretOfTest) - 204, "wrong": send(1000002, now, "another") - 403,
				"old": send(1000002, now-301, secretOfTest) - 403, "unsigned": send(1000002, now, "") - 403} {
				if code != 0 {
					t.Errorf("%s: %d off", what, code)
				}
			}
			s := harness.Serve(t, "--durability", "os")
			s.Run("collection", "create", "orders").OK()
			s.Run("document", "upsert", "orders", "a", "{}").OK()
			actor(t, s, "--post", "http://"+address, "--secret-file", filepath.Join(dir, "secret"))
			eventually(t, "all is sent", func() bool { return caughtUp(t, s) })
			if done := printed(r.Output()); len(done) != 3 || done[0] != `{"seq":1000001}` || !strings.Contains(done[2], `"id":"a"`) {
				t.Errorf("it did %q", done)
			}
		})
	}
}

// printed returns the lines of JSON in an output, which has log lines, too.
func printed(output string) (done []string) {
	for _, line := range harness.Lines(output) {
		if strings.HasPrefix(line, "{") {
			done = append(done, line)
		}
	}
	return done
}

// TestMailOfThePage: the command of docs/actions.md, with the flags of its env file, mails the
// user of an expired trial.
func TestMailOfThePage(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	server, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { server.Close() })
	mails := make(chan string, 1)
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			if mail := receiveMail(c); mail != "" {
				mails <- mail
			}
		}
	}()
	command := filepath.Join(t.TempDir(), "trial-mails")
	_, port, _ := net.SplitHostPort(server.Addr().String())
	write(t, command, strings.Replace(programs(t, "python")[0], `SMTP("127.0.0.1")`, `SMTP("127.0.0.1", `+port+`)`, 1))
	check(t, os.Chmod(command, 0o700))
	flags, _ := strings.CutPrefix(strings.TrimSpace(programs(t, "ini")[0]), "WATCH_FLAGS=")
	s := harness.Serve(t, "--durability", "os")
	s.Run("collection", "create", "trials", `{"defaultTtl":1}`).OK()
	s.Run("document", "create", "trials", "ann", `{"address":"ann@example.net"}`).OK()
	cmd := harness.Command(t, append([]string{"watch", "--server", s.URL(), "--since", "1", "--durable", "trial-mails", "--exec", command}, strings.Fields(flags)...)...)
	p := harness.StartProcess(t, cmd, nil)
	t.Cleanup(p.Kill)
	select {
	case mail := <-mails:
		for _, want := range []string{"To: ann@example.net\r\n", "Subject: Your trial has ended\r\n", "Message-ID: <trial-"} {
			if !strings.Contains(mail, want) {
				t.Errorf("the mail lacks %q: %s", want, mail)
			}
		}
	case <-time.After(patience):
		t.Errorf("no mail: %s", p.Output())
	}
	if code := p.End(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM ends watch with %d: %s", code, p.Output())
	}
}

// receiveMail speaks as much SMTP as one mail needs.
func receiveMail(c net.Conn) (mail string) {
	defer c.Close()
	var text bytes.Buffer
	in, data := bufio.NewScanner(c), false
	fmt.Fprint(c, "220 test\r\n")
	for in.Scan() {
		switch line := strings.TrimSuffix(in.Text(), "\r"); {
		case data && line == ".":
			data = false
			fmt.Fprint(c, "250 stored\r\n")
		case data:
			text.WriteString(line + "\r\n")
		case strings.EqualFold(line, "data"):
			data = true
			fmt.Fprint(c, "354 go on\r\n")
		case strings.EqualFold(line, "quit"):
			fmt.Fprint(c, "221 bye\r\n")
			return text.String()
		default:
			fmt.Fprint(c, "250 ok\r\n")
		}
	}
	return text.String()
}
