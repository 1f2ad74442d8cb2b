package roll

import (
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
)

// TestStore: a store that 0.3.0 left after a kill is served by this version, which is killed,
// then by 0.3.0 again, then by this version. Each finds what the others wrote and the same
// digest, folds nothing again, and each log is sound.
func TestStore(t *testing.T) {
	older, dir, addr := build(t), t.TempDir(), harness.FreeAddr(t)
	if out, err := child.Tool(t.Context(), "tar", "-xzf", "../../testdata/release/store.tar.gz", "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	digest := regexp.MustCompile(`"digest":"[^"]*"`)
	var before string // the digest when the last one was killed
	for i, id := range []string{"by-newer", "by-older", "by-newest"} {
		// The log may be years old by now.
		args := []string{"serve", "--store-dir", filepath.Join(dir, "store"), "--listen", addr, "--console", "off", "--accept-clock"}
		cmd := harness.Command(t, args...)
		if i == 1 {
			cmd = child.Command(t, older, args...)
		}
		p := harness.StartProcess(t, cmd, nil)
		select {
		case <-p.Ready:
		case <-p.Ended:
			t.Fatalf("%s: it ends before it is ready:\n%s", id, p.Output())
		}
		run := func(args ...string) string {
			return harness.Run(t, nil, append(args, "--server", "nats://"+addr)...).OK()
		}
		if now := digest.FindString(run("status")); before != "" && now != before {
			t.Errorf("%s: the digest is %s, and was %s", id, now, before)
		}
		run("document", "create", "orders", id, `{}`)
		for _, earlier := range []string{"d1", "by-newer", "by-older"}[:i+1] {
			run("document", "get", "orders", earlier)
		}
		run("audit")
		before = digest.FindString(run("status"))
		if strings.Contains(p.Output(), "folded again") || strings.Contains(p.Output(), "damaged") {
			t.Errorf("%s: it does not take the store as it is:\n%s", id, p.Output())
		}
		p.End(syscall.SIGKILL)
	}
}
