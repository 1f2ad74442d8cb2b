package projections

// Health describes Pebble and its disk.
type Health struct {
	Bytes                  uint64 // of Pebble's files
	Available, Total       uint64 // bytes of the disk that holds the files; 0 if unknown
	L0Sublevels            int64  // overlapping runs of level 0, which a lookup reads
	CacheHits, CacheMisses int64
	Flushes                int64
}

// Health returns the state of Pebble and its disk in well under a millisecond. Do not
// call it after Close.
func (s *Store) Health() Health {
	m := s.db.Metrics()
	h := Health{
		Bytes:       m.DiskSpaceUsage(),
		L0Sublevels: int64(m.Levels[0].Sublevels),
		CacheHits:   m.BlockCache.Hits,
		CacheMisses: m.BlockCache.Misses,
		Flushes:     m.Flush.Count,
	}
	if usage, err := s.disk.FS.GetDiskUsage(s.disk.dir); err == nil {
		h.Available, h.Total = usage.AvailBytes, usage.TotalBytes
	}
	return h
}
