package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/lapsedb/lapse/processor/embedded"
)

var touched byte

// dirty returns how many KiB of a file are in memory and not yet on disk, from what the
// kernel reports for a mapping of it.
func dirty(t *testing.T, path string) (kib int) {
	t.Helper()
	file, err := os.Open(path)
	check(t, err)
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		t.Fatalf("%s has nothing in it (%v)", path, err)
	}
	mapped, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	check(t, err)
	defer func() { _ = syscall.Munmap(mapped) }()
	for i := 0; i < len(mapped); i += os.Getpagesize() {
		touched += mapped[i] // so that the page is in the mapping
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	defer smaps.Close()
	address := fmt.Sprintf("%08x-", uintptr(unsafe.Pointer(unsafe.SliceData(mapped))))
	ours := false
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		line := lines.Text()
		if !strings.HasSuffix(strings.Fields(line)[0], ":") {
			ours = strings.HasPrefix(line, address)
		}
		var n int
		if name, rest, _ := strings.Cut(line, ":"); ours && (name == "Shared_Dirty" || name == "Private_Dirty") {
			if _, err := fmt.Sscanf(strings.TrimSpace(rest), "%d kB", &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			kib += n
		}
	}
	return kib
}

// TestStoreIsSynced: with SyncAlways, acknowledged writes are on disk. Without it they
// are not, which shows that the test would notice.
func TestStoreIsSynced(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{false, true} {
		dir := t.TempDir()
		s, nc, js := startLog(t, embedded.Options{StoreDir: dir, SyncAlways: always})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		single := func() error {
			_, err := js.Publish(ctx, appendTo("orders.DocumentCreated"), []byte(`{}`))
			return err
		}
		batch := func() error { // as group commits are
			publisher, err := jetstreamext.NewBatchPublisher(js)
			for range 9 {
				if err == nil {
					err = publisher.Add(appendTo("orders.DocumentCreated"), []byte(`{}`))
				}
			}
			if err == nil {
				_, err = publisher.Commit(ctx, appendTo("orders.DocumentCreated"), []byte(`{}`))
			}
			return err
		}
		writes := []func() error{single, batch}
		if stage := s.Stage(db); stage != nil {
			writes = append(writes, func() error { return sendBatch(nc, stage(100), 1, 10, true, []byte(`{}`)) })
		}
		unsynced := 0
		for i := range 30 {
			check(t, writes[i%len(writes)]())
			blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "LAPSE", "streams", "LAPSE_main", "msgs", "*.blk"))
			if err != nil || len(blocks) != 1 {
				t.Fatalf("the stream is in %v (%v)", blocks, err)
			}
			unsynced += dirty(t, blocks[0])
		}
		switch {
		case always && unsynced > 0:
			t.Errorf("%d KiB were acknowledged and not on disk", unsynced)
		case !always && unsynced == 0:
			t.Skip("this file system does not tell what is on disk")
		}
	}
}
