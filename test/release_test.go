package test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// TestStoreOfPreviousRelease: lapse opens a store directory that 0.3.0 left after a kill
// as it is: same log, same digest, its projection, its snapshot. testdata/release/make.sh
// has made it.
func TestStoreOfPreviousRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unpack(t, "testdata/release/store.tar.gz", dir)
	// The log may be years old by now.
	s := harness.ServeIn(t, filepath.Join(dir, "store"), "--accept-clock")
	if stderr := s.Stderr(); strings.Contains(stderr, "folded again") || strings.Contains(stderr, "damaged") || strings.Contains(stderr, "lost") {
		t.Errorf("it does not accept the store as it is:\n%s", stderr)
	}
	want, err := os.ReadFile("testdata/release/log.jsonl")
	check(t, err)
	exported := harness.Run(t, nil, "export", "--until", "29", "--server", s.URL()).OK()
	if exported != string(want) {
		t.Errorf("the log is\n%s\nand was\n%s", exported, want)
	}
	if digest := harness.Run(t, strings.NewReader(exported), "replay", "-", "--digest").OK(); !strings.Contains(digest, "29:a448be62a7c8ba11") {
		t.Errorf("its digest is %s", digest)
	}
	nc := dial(t, s)
	mustAsk(t, nc, 200, "document.get.orders.d1", "")
	mustAsk(t, nc, 200, "document.get.orders.late", "") // not yet in the projection
	mustAsk(t, nc, 404, "document.get.orders.short", "")
	mustAsk(t, nc, 423, "document.delete.orders.d5", "") // held
	mustAsk(t, nc, 204, "document.delete.orders.d6", "") // released
	mustAsk(t, nc, 200, "query.orders", `{"where":"doc.customer == 'C1'"}`)
	if r := harness.Run(t, nil, "snapshot", "verify", "28", "--server", s.URL()).OK(); !strings.Contains(r, `"sound":true`) {
		t.Errorf("its snapshot: %s", r)
	}
	mustAsk(t, nc, 201, "document.create.orders.short", `{}`)
	harness.Run(t, nil, "audit", "--server", s.URL()).OK()
	s.Stop()
	s.Restart()
	mustAsk(t, dial(t, s), 200, "document.get.orders.short", "")
}

// unpack extracts a compressed tar file below dir.
func unpack(t *testing.T, name, dir string) {
	t.Helper()
	file, err := os.Open(name)
	check(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	check(t, err)
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		check(t, err)
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			check(t, os.MkdirAll(path, 0o750))
			continue
		}
		content, err := io.ReadAll(r)
		check(t, err)
		check(t, os.WriteFile(path, content, 0o600))
	}
}
