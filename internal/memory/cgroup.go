package memory

import (
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// groupLimit returns the least memory limit of the process's control group and the groups
// that it is in, of version 1 or 2; math.MaxInt64 for none.
func groupLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	mounts, _ := fs.ReadFile(root, "proc/self/mountinfo")
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range bytes.Lines(groups) {
		controllers, group, ok := strings.Cut(after(string(bytes.TrimSpace(line)), ":"), ":")
		if !ok {
			continue
		}
		file := "memory.max"
		switch {
		case controllers == "": // version 2
		case strings.Contains(","+controllers+",", ",memory,"):
			file = "memory.limit_in_bytes"
		default:
			continue
		}
		limit = min(limit, leastOf(root, string(mounts), controllers != "", group, file))
	}
	return limit
}

func after(text, separator string) string {
	_, rest, _ := strings.Cut(text, separator)
	return rest
}

// leastOf returns the least limit in file of group and those above it. A container may see
// its own group as the root of the mount, or all groups.
func leastOf(root fs.FS, mounts string, first bool, group, file string) int64 {
	limit := int64(math.MaxInt64)
	for line := range strings.Lines(mounts) {
		mount, kind, ok := strings.Cut(line, " - ")
		f, k := strings.Fields(mount), strings.Fields(kind)
		if !ok || len(f) < 5 || len(k) < 3 {
			continue
		}
		if first && (k[0] != "cgroup" || !strings.Contains(","+k[2]+",", ",memory,")) || !first && k[0] != "cgroup2" {
			continue
		}
		dir := "/"
		if below, ok := strings.CutPrefix(group, strings.TrimSuffix(f[3], "/")); ok {
			dir = path.Join("/", below)
		}
		for ; ; dir = path.Dir(dir) {
			text, _ := fs.ReadFile(root, strings.TrimPrefix(path.Join(f[4], dir, file), "/"))
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}
