package snapshot

import (
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestPadSize: an event of padding fits into the server's largest message.
func TestPadSize(t *testing.T) {
	for _, limit := range []int64{64 << 10, 1 << 20, 64 << 20} {
		if size := padSize(limit); size <= 0 || size > padAtOnce || int64(size)+2*schema.HeaderRoom > limit {
			t.Errorf("padding of %d bytes in messages of %d", size, limit)
		}
	}
}

// TestSpareBytes: a small disk can have snapshots, too.
func TestSpareBytes(t *testing.T) {
	for total, want := range map[uint64]uint64{100 << 20: 5 << 20, 1 << 40: 64 << 20} {
		if got := spareBytes(total); got != want {
			t.Errorf("of %d bytes %d stay free, want %d", total, got, want)
		}
	}
}
