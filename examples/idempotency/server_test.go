package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/examples/internal/manual"
	"github.com/lapsedb/lapse/examples/internal/server"
	"github.com/lapsedb/lapse/test/child"
)

// TestMain runs the program, or one whose requests hang, if a test starts it.
func TestMain(m *testing.M) {
	manual.Main(m, func() {
		if os.Getenv(manual.Program) == "hang" {
			log.Fatal(serve(context.Background(), 3*time.Second, func(http.ResponseWriter, *http.Request) {
				fmt.Println("running")
				select {}
			}))
		}
		main()
	})
}

// TestPage: docs/idempotency.md, on lapse serve.
func TestPage(t *testing.T) {
	manual.Run(t, "idempotency.md", "NATS_URL="+server.Start(t))
}

// TestKilled: the key of a process that is killed is free for another after its deadline,
// and the reply of that one outlives it.
func TestKilled(t *testing.T) {
	nats := server.Start(t)
	start := func(program string) (cmd *exec.Cmd, url string, lines *bufio.Scanner) {
		cmd = child.Command(t, os.Args[0], "-listen", "127.0.0.1:0")
		cmd.Env, cmd.Stderr = append(cmd.Env, "NATS_URL="+nats, manual.Program+"="+program), os.Stderr
		out, err := cmd.StdoutPipe()
		check(t, err)
		check(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		lines = bufio.NewScanner(out)
		lines.Scan()
		return cmd, strings.TrimPrefix(lines.Text(), "serves "), lines
	}
	send := func(url string) (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), "POST", url, nil)
		check(t, err)
		r.Header.Set("Idempotency-Key", "k")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		return line(response), nil
	}
	holder, url, lines := start("hang")
	failed := make(chan error)
	go func() {
		_, err := send(url)
		failed <- err
	}()
	lines.Scan() // it is running
	check(t, holder.Process.Kill())
	if <-failed == nil {
		t.Error("a killed process replies")
	}
	_, url, _ = start("1")
	got, err := send(url)
	check(t, err)
	want(t, "the key of the killed", got, "409 ")
	for strings.HasPrefix(got, "409 ") {
		time.Sleep(100 * time.Millisecond)
		got, err = send(url)
		check(t, err)
	}
	want(t, "after the deadline", got, "201  Location=/charges/")
	_, url, _ = start("1")
	again, err := send(url)
	check(t, err)
	want(t, "another process", again, got+" Idempotent-Replayed=true")
}
