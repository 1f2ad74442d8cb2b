package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/examples/internal/manual"
	"github.com/lapsedb/lapse/examples/internal/server"
	"github.com/lapsedb/lapse/lapsetest/bubble"
	"github.com/lapsedb/lapse/test/child"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// crew runs workers and counts what they do.
type crew struct {
	t    *testing.T
	mu   sync.Mutex
	ran  map[string]int         // by job
	did  map[int]int            // by worker
	when map[string][]time.Time // by job
	all  sync.WaitGroup
}

func newCrew(t *testing.T) *crew {
	return &crew{t: t, ran: map[string]int{}, did: map[int]int{}, when: map[string][]time.Time{}}
}

func (c *crew) hire(ctx context.Context, worker int, jobs *Jobs, run Run) {
	c.all.Go(func() {
		err := jobs.Work(ctx, func(ctx context.Context, id string, j Job) error {
			c.mu.Lock()
			c.ran[id]++
			c.did[worker]++
			c.when[id] = append(c.when[id], time.Now())
			c.mu.Unlock()
			return run(ctx, id, j)
		})
		if ctx.Err() == nil {
			c.t.Error(err)
		}
	})
}

// cancelMeetsRun makes jobs, cancels each when it is due, or a bit before or after, and returns
// which were cancelled.
func cancelMeetsRun(t *testing.T, jobs *Jobs, meetings int) (cancelled map[string]bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Second).Truncate(time.Second)
	var all sync.WaitGroup
	var mu sync.Mutex
	cancelled = map[string]bool{}
	for i := range meetings {
		id := fmt.Sprint("job", i)
		check(t, jobs.At(t.Context(), id, deadline.Add(time.Duration(i%10)*time.Second), Job{Text: id}))
		all.Go(func() {
			early := []time.Duration{0, time.Nanosecond, -time.Nanosecond, time.Millisecond, -time.Millisecond}[i/10%5]
			time.Sleep(time.Until(deadline.Add(time.Duration(i%10)*time.Second - early)))
			err := jobs.Cancel(t.Context(), id)
			if err != nil && err != ErrTooLate || early > 0 && err != nil || early < 0 && err == nil {
				t.Errorf("cancel %v early: %v", early, err)
			}
			mu.Lock()
			defer mu.Unlock()
			cancelled[id] = err == nil
		})
	}
	all.Wait()
	return cancelled
}

// TestVirtual: cancel and run meet at the deadline, and exactly one happens; failures come
// back later; the job of a worker that dies is another one's.
func TestVirtual(t *testing.T) {
	const meetings = 2000
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c := s.Client(t)
		jobs, err := OpenJobs(ctx, c)
		check(t, err)
		crew := newCrew(t)
		broken := errors.New("broken")
		var last string // job of the worker that dies
		dying, die := context.WithCancel(ctx)
		defer die()
		for worker := range 4 {
			own, err := OpenJobs(ctx, s.Client(t))
			check(t, err)
			life := ctx
			if worker == 0 {
				life = dying
			}
			crew.hire(life, worker, own, func(ctx context.Context, id string, j Job) error {
				switch {
				case id == "long":
					time.Sleep(5 * ackWait)
				case id == "broken", id == "flaky" && j.Tries < 2:
					return broken
				case worker == 0 && strings.HasPrefix(id, "crash"):
					last = id
					die()
					return ctx.Err()
				}
				return nil
			})
		}
		cancelled := cancelMeetsRun(t, jobs, meetings)
		time.Sleep(time.Minute)
		crew.mu.Lock()
		for id, gone := range cancelled {
			if ran := crew.ran[id]; gone && ran != 0 || !gone && ran != 1 {
				t.Errorf("%s ran %d times; cancelled: %v", id, ran, gone)
			}
		}
		for worker := range 4 {
			if crew.did[worker] == 0 {
				t.Errorf("worker %d did nothing", worker)
			}
		}
		crew.mu.Unlock()

		// Failures come back, long jobs are not another one's, and those of the dead are.
		for _, id := range []string{"flaky", "broken", "long", "never"} {
			check(t, jobs.At(ctx, id, time.Now().Add(time.Hour), Job{}))
		}
		check(t, jobs.At(ctx, "never", time.Now().Add(9*time.Hour), Job{})) // moved
		for dying.Err() == nil {                                            // NATS chooses the worker of each
			for i := range 20 {
				check(t, jobs.At(ctx, fmt.Sprint("crash", i), time.Now().Add(time.Second), Job{}))
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(2 * time.Hour)
		check(t, jobs.Cancel(ctx, "never"))
		stop()
		crew.all.Wait()
		for id, want := range map[string]int{"flaky": 3, "broken": maxTries, "long": 1, "never": 0} {
			if got := crew.ran[id]; got != want {
				t.Errorf("%s ran %d times, want %d", id, got, want)
			}
		}
		// The last one ran on the dying worker, and again on another.
		if at := crew.when[last]; len(at) < 2 || at[len(at)-1].Sub(at[len(at)-2]) > ackWait {
			t.Errorf("the job of the dead worker ran at %v", at)
		}
		if at := crew.when["flaky"]; len(at) == 3 && (at[1].Sub(at[0]) < firstWait || at[2].Sub(at[1]) < 2*firstWait) {
			t.Errorf("retries at %v", at)
		}
		if n, err := client.Count(t.Context(), jobs.failed); n != 1 || err != nil {
			t.Errorf("%d failed jobs, %v", n, err)
		}
	})
}

// TestPutAside: a job that no worker can read, or that is too large to try again or too deep
// to put aside, ends no worker, and a job whose moment has passed runs at once.
func TestPutAside(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		jobs, err := OpenJobs(ctx, s.Client(t))
		check(t, err)
		_, err = client.Upsert(ctx, jobs.waiting, "unreadable", map[string]int{"text": 5}, client.TTL(time.Second))
		check(t, err)
		_, err = client.Upsert(ctx, jobs.waiting, "large", Job{Text: strings.Repeat("x", 2<<20-len(`{"text":"","ttl":1}`))}, client.TTL(time.Second))
		check(t, err)
		_, err = client.Upsert(ctx, jobs.waiting, "deep", json.RawMessage(`{"text":`+strings.Repeat("[", 127)+strings.Repeat("]", 127)+`,"ttl":1}`))
		check(t, err)
		crew := newCrew(t)
		crew.hire(ctx, 0, jobs, func(_ context.Context, id string, _ Job) error {
			if id == "large" {
				return errors.New("broken")
			}
			return nil
		})
		time.Sleep(time.Minute)
		check(t, jobs.At(ctx, "late", time.Now().Add(-5*time.Second), Job{}))
		time.Sleep(time.Minute)
		stop()
		crew.all.Wait()
		if got := fmt.Sprint(crew.ran); got != "map[large:1 late:1]" {
			t.Errorf("what ran: %s", got)
		}
		if n, err := client.Count(t.Context(), jobs.failed); n != 3 || err != nil {
			t.Errorf("%d failed jobs, %v", n, err)
		}
	})
}

func TestMain(m *testing.M) { manual.Main(m, main) }

// TestPage: docs/delayed-jobs.md, on lapse serve.
func TestPage(t *testing.T) {
	manual.Run(t, "delayed-jobs.md", "NATS_URL="+server.Start(t))
}

// TestServer: the program on lapse serve.
func TestServer(t *testing.T) {
	url := server.Start(t)
	program := func(args ...string) *exec.Cmd {
		cmd := child.Command(t, os.Args[0], args...)
		cmd.Env, cmd.Stderr = append(cmd.Env, "NATS_URL="+url, manual.Program+"=1"), os.Stderr
		return cmd
	}
	check(t, program("at", "1h", "late", "never").Run())
	check(t, program("at", "1s", "soon", "hello").Run())
	check(t, program("cancel", "late").Run())
	if program("cancel", "late").Run() == nil {
		t.Error("a job is cancelled twice")
	}
	worker := program("work")
	out, err := worker.StdoutPipe()
	check(t, err)
	check(t, worker.Start())
	var id, text string
	if _, err := fmt.Fscan(out, &id, &text); err != nil || id+text != "soonhello" {
		t.Errorf("it prints %q %q, %v", id, text, err)
	}
	check(t, worker.Process.Kill())
	_ = worker.Wait()
}
