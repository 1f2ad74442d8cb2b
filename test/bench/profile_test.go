package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/child"
)

// profiles is the directory for profiles of lapse, "" for none: make profile sets it.
var profiles = os.Getenv("BENCH_PROFILES")

// profile writes CPU profiles of a lapse process, one after the other until the end of
// the benchmark, then those of allocations, mutexes and blocking, and prints the top of
// each.
func profile(b *testing.B, address string) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	_, port, _ := net.SplitHostPort(address)
	var parts []string
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			part := filepath.Join(profiles, fmt.Sprintf("cpu-%s-%d.pprof", port, len(parts)))
			if err := fetch(ctx, address, "profile?seconds=2", part); err == nil {
				parts = append(parts, part)
			} else if ctx.Err() == nil {
				b.Logf("no more profiles: %v", err) // the benchmark has killed the server
				return
			}
		}
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
		if len(parts) > 0 {
			top(b, parts...)
		}
		// A profile includes allocations after the second garbage collection.
		for _, what := range []string{"heap?gc=1", "heap?gc=1", "allocs", "mutex", "block"} {
			path := filepath.Join(profiles, strings.TrimSuffix(what, "?gc=1")+".pprof")
			if err := fetch(context.Background(), address, what, path); err != nil {
				return
			}
			if !strings.HasPrefix(what, "heap") {
				top(b, path)
			}
		}
	})
}

func fetch(ctx context.Context, address, what, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/debug/pprof/"+what, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", what, response.Status, data)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

func top(b *testing.B, files ...string) {
	command := child.Tool(context.Background(), "go", append([]string{"tool", "pprof", "-top", "-nodecount=25"}, files...)...)
	out, err := command.CombinedOutput()
	fmt.Fprintf(os.Stderr, "\n%v\n%s", files, out)
	if err != nil {
		b.Error(err)
	}
}
