package roll

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// release is the commit of 0.3.0.
const release = "6ca4335c"

// dir has the source and the binary of the release.
var dir string

var check = harness.Check

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "lapse-roll-"); err != nil {
		panic(err)
	}
	code := harness.Main(m)
	_ = os.RemoveAll(dir) // or it stays in the temporary directory
	os.Exit(code)
}

// build returns the binary of the release, which it builds at the first call. It skips the test
// where git lacks the commit.
func build(t *testing.T) (binary string) {
	t.Helper()
	binary, archive := filepath.Join(dir, "lapse"), filepath.Join(dir, "source.tar")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	git := child.Tool(t.Context(), "git", "archive", "-o", archive, release)
	git.Dir = "../../.."
	if out, err := git.CombinedOutput(); err != nil {
		t.Skipf("git has no commit %s: %v %s", release, err, out)
	}
	for _, args := range [][]string{{"tar", "-xf", archive}, {"go", "build", "-o", binary, "./cmd/lapse"}} {
		cmd := child.Tool(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return binary
}

// databases are shared by three processes.
var databases = []string{"a", "b", "c"}

// member is one of the processes, on the same directory in each version.
type member struct {
	dir     string
	older   string // the binary of the release
	url     string
	process *harness.Process
}

func (m *member) start(t *testing.T, older bool) {
	t.Helper()
	cmd := harness.Command(t, m.args()...)
	if older {
		cmd = child.Command(t, m.older, m.args()...)
	}
	m.process = harness.StartProcess(t, cmd, nil)
	select {
	case <-m.process.Ready:
	case <-m.process.Ended:
		t.Fatalf("it ends before it is ready:\n%s", m.process.Output())
	}
}

func (m *member) args() []string {
	return []string{"serve", "--store-dir", m.dir, "--nats-url", m.url, "--lease", "5s", "--copies", "2", "--database", strings.Join(databases, ",")}
}

func (m *member) stop(t *testing.T) {
	t.Helper()
	if code := m.process.End(syscall.SIGTERM); code != 0 {
		t.Errorf("it ends with %d:\n%s", code, m.process.Output())
	}
}

// writer writes one database until its context ends, and keeps what was acknowledged.
type writer struct {
	lapse *client.Client
	acked map[string]int // by id: the last number
}

func (w *writer) run(ctx context.Context, t *testing.T) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprint("d", n%50)
		op := "document.upsert"
		for ctx.Err() == nil {
			reply, err := w.lapse.Do(ctx, op, "c", id, fmt.Appendf(nil, `{"n":%d}`, n), client.MsgID(fmt.Sprint("m", n)))
			if err == nil {
				w.acked[id] = n
				break
			}
			if reply != nil && reply.Status < 500 && reply.Status != 429 {
				t.Errorf("write %d: %v", n, err)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// TestRoll: three processes of 0.3.0 are replaced by this version, one after the other, and
// back, while clients write. Nothing acknowledged is lost, each version expires once, and in
// each mix all databases have a writer and two copies.
func TestRoll(t *testing.T) {
	older := build(t)
	url := harness.StartNATS(t, harness.NATSOptions(t.TempDir())).ClientURL()
	var members []*member
	for range 3 {
		m := &member{dir: t.TempDir(), older: older, url: url}
		m.start(t, true)
		defer func() { m.process.End(syscall.SIGKILL) }()
		members = append(members, m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writers := map[string]*writer{}
	for _, db := range databases {
		lapse, err := client.New(harness.Dial(t, url), client.WithDatabase(db), client.WithTimeout(2*time.Second))
		check(t, err)
		eventually(t, "a collection of "+db, func() bool {
			_, err := lapse.Do(ctx, "collection.create", "c", "", []byte(`{}`))
			return err == nil || strings.Contains(err.Error(), "exists")
		})
		w := &writer{lapse, make(map[string]int)}
		writers[db] = w
		writing.Go(func() { w.run(ctx, t) })
	}
	served := func(newer int) {
		t.Helper()
		eventually(t, fmt.Sprintf("a writer and two copies of each with %d newer", newer), func() bool {
			all, err := writers["a"].lapse.AllProcesses(ctx)
			n, copies := map[string]int{}, map[string]int{}
			for _, p := range all {
				copies[p.Database]++
				if p.Role == "writer" {
					n[p.Database]++
				}
			}
			return err == nil && !slices.ContainsFunc(databases, func(db string) bool { return n[db] != 1 || copies[db] < 2 })
		})
	}
	for _, to := range []bool{false, true} {
		for i, m := range members {
			m.stop(t)
			m.start(t, to)
			if to {
				served(len(members) - 1 - i)
			} else {
				served(i + 1)
			}
		}
	}
	cancel()
	writing.Wait()
	for db, w := range writers {
		harness.Run(t, nil, "audit", "--server", url, "--database", db).OK()
		got := map[string]int{}
		for _, line := range harness.Lines(harness.Run(t, nil, "export", "--server", url, "--database", db).OK()) {
			var e struct {
				ID   string
				Body struct{ N int }
			}
			check(t, json.Unmarshal([]byte(line), &e))
			got[e.ID] = e.Body.N
		}
		for id, n := range w.acked {
			if got[id] < n {
				t.Errorf("%s: %d of %s was acknowledged, the log ends with %d", db, n, id, got[id])
			}
		}
		if len(w.acked) == 0 {
			t.Errorf("%s: nothing was written", db)
		}
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}
