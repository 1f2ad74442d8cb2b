package projections

// Health describes Pebble and its disk.
type Health struct {
	Bytes                  uint64 // of Pebble's files
	Available, Total       uint64 // bytes of the disk that holds the files; 0 if unknown
	CompactionDebt         uint64 // estimated compaction debt in bytes
	ReadAmplification      int    // sorted runs that a lookup may read
	L0Files, L0Sublevels   int64
	MemTableBytes          uint64
	CacheBytes             int64
	CacheHits, CacheMisses int64
	Flushes, Compactions   int64
	CompactedBytes         uint64 // read and written by compactions
}

// Health returns the state of Pebble and its disk in well under a millisecond. Do not
// call it after Close.
func (s *Store) Health() Health {
	m := s.db.Metrics()
	h := Health{
		Bytes:             m.DiskSpaceUsage(),
		CompactionDebt:    m.Compact.EstimatedDebt,
		ReadAmplification: m.ReadAmp(),
		L0Files:           m.Levels[0].TablesCount,
		L0Sublevels:       int64(m.Levels[0].Sublevels),
		MemTableBytes:     m.MemTable.Size,
		CacheBytes:        m.BlockCache.Size,
		CacheHits:         m.BlockCache.Hits,
		CacheMisses:       m.BlockCache.Misses,
		Flushes:           m.Flush.Count,
		Compactions:       m.Compact.Count,
	}
	for i := range m.Levels {
		h.CompactedBytes += m.Levels[i].TableBytesRead + m.Levels[i].TableBytesCompacted
	}
	if usage, err := s.disk.FS.GetDiskUsage(s.disk.dir); err == nil {
		h.Available, h.Total = usage.AvailBytes, usage.TotalBytes
	}
	return h
}
