package versus

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// Process is a peer in a process of its own.
type Process struct {
	PID int
	URL string
	run *harness.Process
}

// role is the environment variable with the role of a test binary that is a peer.
const role = "BENCH_ROLE"

// Roles are further roles of a test binary, besides the peers here, by name. A role
// works until it is killed, or returns an error; it calls ready once, with the URL of
// its Process.
type Roles map[string]func(argument string, ready func(url string)) error

// Main runs the test binary in the role it was started with, and exits; without a role
// it returns. TestMain calls it first.
func Main(roles Roles) {
	what := os.Getenv(role)
	if what == "" {
		return
	}
	name, argument, _ := strings.Cut(what, " ")
	err := error(nil)
	if other := roles[name]; other != nil {
		err = other(argument, func(url string) { fmt.Println("ready", url) })
	} else {
		err = play(what)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// StartNATS starts a plain NATS server with JetStream on disk, of the version
// that is inside lapse, in a process of its own until the benchmark ends.
func StartNATS(tb testing.TB, syncAlways bool) *Process {
	tb.Helper()
	return StartNATSIn(tb, tb.TempDir(), syncAlways)
}

// StartNATSIn is StartNATS with a store directory that may already exist. It returns
// when the server accepts JetStream requests.
func StartNATSIn(tb testing.TB, dir string, syncAlways bool) *Process {
	tb.Helper()
	return start(tb, fmt.Sprintf("nats %t %s", syncAlways, dir))
}

// EchoSubject is the subject of the echo service, which also serves all below it.
const EchoSubject = "bench.echo"

// StartEcho starts the minimum of any NATS service: a server, and in the same process a
// service that sends the body back.
func StartEcho(tb testing.TB) *Process {
	tb.Helper()
	return start(tb, "echo")
}

// StartRole starts this test binary in one of its Roles, and returns when it is ready.
func StartRole(tb testing.TB, name, argument string) *Process {
	tb.Helper()
	return start(tb, name+" "+argument)
}

// Kill ends the process at once and waits for its end.
func (p *Process) Kill() { p.run.Kill() }

// Stop is Kill, with an error if the process had already exited by itself.
func (p *Process) Stop() error {
	p.Kill()
	if p.run.ProcessState.Exited() {
		return fmt.Errorf("%s", p.run.ProcessState)
	}
	return nil
}

func start(tb testing.TB, what string) *Process {
	tb.Helper()
	cmd := child.Command(tb, os.Args[0])
	cmd.Env = append(cmd.Env, role+"="+what, QuickEnv+"="+os.Getenv(QuickEnv))
	cmd.Stderr = os.Stderr
	run := harness.StartProcess(tb, cmd, nil)
	tb.Cleanup(run.Kill)
	select {
	case <-run.Ready:
	case <-run.Ended:
		tb.Fatalf("%s: %s", what, run.ProcessState)
	}
	return &Process{run.Process.Pid, strings.TrimSpace(strings.TrimPrefix(run.Output(), "ready")), run}
}

func play(what string) error {
	args := strings.SplitN(what, " ", 3)
	options := serverOptions("", false)
	options.JetStream = false
	if args[0] == "nats" {
		options = serverOptions(args[2], args[1] == "true")
	}
	return Serve(options, func(url string) error {
		if args[0] == "echo" {
			nc, err := nats.Connect(url)
			if err != nil {
				return err
			}
			if err := echo(nc); err != nil {
				return err
			}
		}
		fmt.Println("ready", url)
		return nil
	})
}

// Serve runs a NATS server until SIGTERM or an interrupt.
func Serve(options *server.Options, ready func(url string) error) error {
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return fmt.Errorf("the NATS server accepts no connections")
	}
	if err := ready(s.ClientURL()); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	<-ended
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

func echo(nc *nats.Conn) error {
	service, err := micro.AddService(nc, micro.Config{Name: "echo", Version: "0.0.0"})
	if err != nil {
		return err
	}
	for name, subject := range map[string]string{"one": EchoSubject, "many": EchoSubject + ".>"} {
		if err := service.AddEndpoint(name, micro.HandlerFunc(func(r micro.Request) { _ = r.Respond(r.Data()) }),
			micro.WithEndpointSubject(subject)); err != nil {
			return err
		}
	}
	return nc.Flush()
}

// Settle waits until this process and the given ones are idle: until they used less than
// a tenth of a processor for a second, or the limit has passed.
func Settle(limit time.Duration, processes ...int) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		before := cpu(processes)
		time.Sleep(time.Second)
		if cpu(processes)-before < time.Second/10 {
			return
		}
	}
}

// clockTicks is the unit of processor time in /proc: 100 a second on every Linux that Go
// runs on.
const clockTicks = time.Second / 100

// cpu returns the processor time used by this process and the given ones. Without /proc
// it counts this process alone.
func cpu(processes []int) (used time.Duration) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		used = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	for _, pid := range processes {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The name, in brackets, may hold anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, _ := strconv.ParseInt(field, 10, 64)
			used += time.Duration(ticks) * clockTicks
		}
	}
	return used
}
