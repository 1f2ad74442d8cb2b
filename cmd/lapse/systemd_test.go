package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/host"
)

// TestServiceManager: systemd hears of serve when it is ready, that it is live, and that
// it stops, in this order.
func TestServiceManager(t *testing.T) {
	dir := t.TempDir()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Skip(err) // no such sockets here
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	t.Setenv("WATCHDOG_USEC", "1000")
	heard := func() string {
		state := make([]byte, 100)
		n, err := socket.Read(state)
		check(t, err)
		return string(state[:n])
	}
	ctx, stop := context.WithCancel(t.Context())
	var output bytes.Buffer
	a := newApp(strings.NewReader(""), &output, &output)
	a.environment = nil
	ended := make(chan int, 1)
	a.host = func(ctx context.Context, o host.Options) error {
		o.Events(host.Ready{Databases: []host.Served{{Name: "main", Role: "writer"}}, Live: func() []string { return nil }})
		<-ctx.Done()
		return nil
	}
	go func() { ended <- a.run(ctx, []string{"serve"}) }()
	if state := heard(); state != "READY=1" {
		t.Errorf("it says first %s", state)
	}
	if state := heard(); state != "WATCHDOG=1" {
		t.Errorf("it says then %s", state)
	}
	stop()
	state := heard()
	for state == "WATCHDOG=1" {
		state = heard()
	}
	if state != "STOPPING=1" {
		t.Errorf("it says at the end %s", state)
	}
	if code := <-ended; code != exitDone {
		t.Errorf("exit %d: %s", code, output.String())
	}
}

// TestWatchdog: the watchdog is told twice in its time that serve is live, and nothing while
// it is not; one line says why.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := make(chan string, 100)
		var logged bytes.Buffer
		var hangs atomic.Bool
		live := func() []string {
			if hangs.Load() {
				return []string{"the writer hangs"}
			}
			return nil
		}
		m := serviceManager{
			notify: func(state string) error { said <- state; return nil },
			logger: slog.New(slog.NewTextHandler(&logged, nil)),
		}
		stopped := m.stops(t.Context())
		m.pings.Go(func() { m.ping(5*time.Second, live) })
		saysIn := func(d time.Duration) (n int) {
			time.Sleep(d)
			synctest.Wait()
			for ; len(said) > 0; n++ {
				if state := <-said; state != "WATCHDOG=1" {
					t.Errorf("it says %s", state)
				}
			}
			return n
		}
		if n := saysIn(10 * time.Second); n != 2 {
			t.Errorf("in 10 s it pings %d times", n)
		}
		hangs.Store(true)
		if n := saysIn(time.Minute); n != 0 || strings.Count(logged.String(), "the writer hangs") != 1 {
			t.Errorf("while it hangs it pings %d times, and logs %s", n, logged.String())
		}
		hangs.Store(false)
		if n := saysIn(5 * time.Second); n != 1 {
			t.Errorf("when it goes on it pings %d times", n)
		}
		stopped()
	})
}

// TestUnit: the variables of the unit and of its example of an environment file are flags
// of serve, and systemd waits longer for the end than lapse takes.
func TestUnit(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../deploy/systemd/lapse.service")
	check(t, err)
	environment, err := os.ReadFile("../../deploy/systemd/lapse.env")
	check(t, err)
	var f serveFlags
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.addFlags(flags)
	names := regexp.MustCompile(`LAPSE_([A-Z_]+)=`).FindAllStringSubmatch(string(unit)+string(environment), -1)
	if len(names) < 8 {
		t.Errorf("only these variables: %v", names)
	}
	for _, name := range names {
		if flags.Lookup(strings.ReplaceAll(strings.ToLower(name[1]), "_", "-")) == nil {
			t.Errorf("%s is of no flag", name[0])
		}
	}
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindSubmatch(unit)
	if stop == nil {
		t.Fatal("no TimeoutStopSec")
	}
	if seconds, err := strconv.Atoi(string(stop[1])); err != nil || time.Duration(seconds)*time.Second <= stopTimeout {
		t.Errorf("TimeoutStopSec=%s, lapse takes up to %s", stop[1], stopTimeout)
	}
}
