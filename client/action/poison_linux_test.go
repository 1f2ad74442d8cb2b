package action

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPoisonFileFull: a disk that is full for a while cuts a line, not the one after it.
func TestPoisonFileFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "aside")
	open := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	file, disk, full := open(path), open(path), open("/dev/full")
	put := PoisonFile(file, "d")
	become := func(other *os.File) {
		if err := syscall.Dup3(int(other.Fd()), int(file.Fd()), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, on := range []*os.File{disk, full, disk, disk} {
		become(on)
		err := put(t.Context(), anEvent(t), errors.New("no"))
		if (err != nil) != (on == full) {
			t.Fatal(err)
		}
		if on == full {
			if _, err := disk.WriteString(`{"durable":"d","se`); err != nil {
				t.Fatal(err)
			}
		}
	}
	checkWhole(t, path, 3)
}
