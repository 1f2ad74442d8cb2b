package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/host"
)

// TestHealthcheck: it says whether the serve that has the socket is ready, with no other
// address, and nothing against a container that serves nothing.
func TestHealthcheck(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "health")
	healthy := func() (code int, printed string) {
		var output bytes.Buffer
		code = newApp(strings.NewReader(""), &output, &output).run(t.Context(), []string{"healthcheck", socket})
		return code, output.String()
	}
	if code, printed := healthy(); code != exitDone || !strings.Contains(printed, "nothing to check") {
		t.Errorf("without serve: exit %d, %s", code, printed)
	}

	ctx, stop := context.WithCancel(t.Context())
	opening, goOn, ready, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan int, 1)
	var output bytes.Buffer
	a := newApp(strings.NewReader(""), &output, &output)
	a.environment = []string{"LAPSE_HEALTH_SOCKET=" + socket}
	a.host = func(ctx context.Context, o host.Options) error {
		o.OwnProcess = false
		events := o.Events
		o.Events = func(e host.Event) {
			if doing, ok := e.(host.Doing); ok && doing() == "opening NATS" {
				close(opening)
				<-goOn
			}
			events(e)
			if _, ok := e.(host.Ready); ok {
				close(ready)
			}
		}
		return host.Run(ctx, o)
	}
	go func() {
		ended <- a.run(ctx, []string{"serve", "--store-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--console", "off", "--durability", "os"})
	}()
	<-opening
	if code, printed := healthy(); code != exitFailed || !strings.Contains(printed, "not ready") {
		t.Errorf("while it starts: exit %d, %s", code, printed)
	}
	close(goOn)
	select {
	case <-ready:
	case code := <-ended:
		t.Fatalf("exit %d: %s", code, output.String())
	}
	if code, printed := healthy(); code != exitDone || printed != "ready\n" {
		t.Errorf("when it serves: exit %d, %s", code, printed)
	}
	stop()
	if code := <-ended; code != exitDone {
		t.Errorf("exit %d: %s", code, output.String())
	}

	// What a process that was killed leaves.
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	check(t, err)
	left.SetUnlinkOnClose(false)
	left.Close()
	if code, printed := healthy(); code != exitFailed || !strings.Contains(printed, "no lapse serve answers") {
		t.Errorf("after a kill: exit %d, %s", code, printed)
	}
}
