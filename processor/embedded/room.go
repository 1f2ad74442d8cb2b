package embedded

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// room returns how many bytes the streams of all accounts may take: three quarters of what
// they have and of what is free, which is the limit that NATS sets once it has read them
// back. Until then it counts only what is free. A batch that the end of a process or a full
// disk interrupted is completed before, and NATS discards it if that fails. So room returns
// an error while there is not enough space for it. It returns 0 if the limit is NATS's.
func (o *Options) room() (bytes int64, err error) {
	disk, err := vfs.Default.GetDiskUsage(o.StoreDir)
	if err != nil {
		return 0, nil
	}
	used := size(o.StoreDir, "jetstream/*/streams/*/msgs/*")
	staged := size(streamsDir(o.StoreDir), "*/batches/*/msgs/*")
	bytes = (used + int64(disk.AvailBytes)) / 4 * 3
	if staged > 0 && bytes-used < 2*staged {
		return 0, writeError(o.StoreDir, fmt.Sprintf("%v: %d bytes of an interrupted batch wait", syscall.ENOSPC, staged))
	}
	return bytes, nil
}

// Space returns how many bytes the streams take, and how many they may take by
// max_file_store and on the disk: 0 if that is unknown.
func (s *Server) Space() (used uint64, most, disk int64) {
	info, err := s.nats.Jsz(nil)
	if err != nil {
		return 0, 0, 0 // it has shut down
	}
	if usage, err := vfs.Default.GetDiskUsage(info.Config.StoreDir); err == nil {
		disk = int64(info.Store + usage.AvailBytes)
	}
	return info.Store, info.Config.MaxStore, disk
}

// size returns the size of the files below a directory that match a pattern.
func size(dir, pattern string) (bytes int64) {
	below := os.DirFS(dir)
	files, _ := fs.Glob(below, pattern)
	for _, name := range files {
		if file, err := fs.Stat(below, name); err == nil {
			bytes += file.Size()
		}
	}
	return bytes
}
