package memory

import (
	"math"
	"testing"
	"testing/fstest"
)

const gib = 1 << 30

// TestAvailable: the least of the machine's memory, the limits of the process's control group
// and those above it, in both versions and as a container sees them, and GOMEMLIMIT counts.
func TestAvailable(t *testing.T) {
	const (
		v2     = "30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1     = "32 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n33 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		docker = "33 31 0:31 /docker/c1 /sys/fs/cgroup/memory ro master:11 - cgroup cgroup rw,memory\n"
	)
	for name, of := range map[string]struct {
		mounts, groups string
		limits         map[string]string
		goLimit, want  int64
	}{
		"only the machine":          {want: 6 * gib},
		"version 2":                 {v2, "0::/a/b\n", map[string]string{"sys/fs/cgroup/a/b/memory.max": "1073741824\n"}, 0, gib / 4 * 3},
		"version 2, a parent":       {v2, "0::/a/b\n", map[string]string{"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "536870912\n"}, 0, gib / 8 * 3},
		"version 2, a sibling":      {v2, "0::/a/b\n", map[string]string{"sys/fs/cgroup/c/memory.max": "1073741824\n"}, 0, 6 * gib},
		"version 2, in a container": {v2, "0::/\n", map[string]string{"sys/fs/cgroup/memory.max": "1073741824\n"}, 0, gib / 4 * 3},
		"version 1":                 {v1, "4:memory:/a\n1:cpu:/b\n", map[string]string{"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1073741824\n"}, 0, gib / 4 * 3},
		"version 1, none":           {v1, "4:memory:/a\n0::/\n", map[string]string{"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, 0, 6 * gib},
		"version 1, in a container": {docker, "4:cpu,memory:/docker/c1\n", map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n"}, 0, gib / 4 * 3},
		"GOMEMLIMIT":                {v2, "0::/a\n", map[string]string{"sys/fs/cgroup/a/memory.max": "1073741824\n"}, gib / 2, gib / 2},
		"GOMEMLIMIT above the rest": {v2, "0::/a\n", map[string]string{"sys/fs/cgroup/a/memory.max": "1073741824\n"}, gib, gib / 4 * 3},
	} {
		root := fstest.MapFS{
			"proc/meminfo":        {Data: []byte("MemTotal:        8388608 kB\nMemFree:         1 kB\n")},
			"proc/self/mountinfo": {Data: []byte(of.mounts)},
			"proc/self/cgroup":    {Data: []byte(of.groups)},
		}
		for file, text := range of.limits {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if of.goLimit == 0 {
			of.goLimit = math.MaxInt64
		}
		if got := available(root, of.goLimit); got != of.want {
			t.Errorf("%s: %d MiB are available, want %d MiB", name, got>>20, of.want>>20)
		}
	}
	if got := divide(available(fstest.MapFS{}, math.MaxInt64)).Total; got != most {
		t.Errorf("on a system that tells nothing lapse takes %d MiB, want %d MiB", got>>20, most>>20)
	}
}

// TestDivide: the parts fit the total at every size, and Go's heap has at least its half.
func TestDivide(t *testing.T) {
	for available := int64(1 << 20); available < 16*gib; available = available * 5 / 4 {
		b := divide(available)
		if b.Total < least || b.Total > most || b.Total > max(available, least) {
			t.Errorf("of %d MiB lapse takes %d MiB", available>>20, b.Total>>20)
		}
		// Four memtables and one that waits for its next use.
		if b.Cache > b.Total/2 || 5*b.MemTable > b.Cache || b.Documents+b.Requests+b.Unread > b.Total/2 {
			t.Errorf("of %d MiB: %+v", available>>20, b)
		}
		if cached, more := b.HeapLimit(b.Cache), b.HeapLimit(2*b.Cache); outside && (cached != more || cached != b.Total-2*b.Cache+b.Ballast) ||
			!outside && (cached != b.Total+b.Ballast || more != cached+b.Cache) {
			t.Errorf("of %d MiB Go's heap has %d MiB, with twice the cache %d MiB", available>>20, cached>>20, more>>20)
		}
	}
}

// TestUse: the system and Go's runtime tell what the process takes.
func TestUse(t *testing.T) {
	block := make([]byte, 64<<20)
	for i := range block {
		block[i] = 1
	}
	if heap := Heap(); heap < int64(len(block)) {
		t.Errorf("the heap has %d bytes, want %d at least", heap, len(block))
	}
	with := Resident()
	clear(block)
	block = nil
	GiveBack()
	if without := Resident(); with != 0 && with-without < 48<<20 {
		t.Errorf("%d MiB of 64 were given back", (with-without)>>20)
	}
}
