package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// profiles is where profiles of lapse go, if anywhere: make profile sets it.
var profiles = os.Getenv("LAPSE_PROFILES")

// profile writes CPU profiles of a lapse process, one after the other until the end of
// the benchmark, then those of allocations, mutexes and blocking, and prints what is at
// the top of each.
func profile(b *testing.B, address string) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var parts []string
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			part := filepath.Join(profiles, fmt.Sprintf("cpu%d.pprof", len(parts)))
			if err := fetch(ctx, address, "profile?seconds=2", part); err == nil {
				parts = append(parts, part)
			} else if ctx.Err() == nil {
				b.Error(err)
				return
			}
		}
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
		top(b, parts...)
		// Allocations are in the profile from the second collection on.
		for range 2 {
			if err := fetch(context.Background(), address, "heap?gc=1", filepath.Join(profiles, "heap.pprof")); err != nil {
				b.Error(err)
			}
		}
		for _, kind := range []string{"allocs", "mutex", "block"} {
			path := filepath.Join(profiles, kind+".pprof")
			if err := fetch(context.Background(), address, kind, path); err != nil {
				b.Error(err)
				continue
			}
			top(b, path)
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
	command := exec.Command("go", append([]string{"tool", "pprof", "-top", "-nodecount=25"}, files...)...)
	out, err := command.CombinedOutput()
	fmt.Fprintf(os.Stderr, "\n%v\n%s", files, out)
	if err != nil {
		b.Error(err)
	}
}
