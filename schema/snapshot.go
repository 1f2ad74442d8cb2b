package schema

// Snapshot is a copy of the projection in a JetStream object store.
type Snapshot struct {
	Seq     uint64 `json:"seq"`     // last log sequence in the snapshot; its name
	LogTime int64  `json:"logTime"` // at Seq, ms since 1970
	Digest  string `json:"digest"`  // of the state, as in Status
	Bytes   uint64 `json:"bytes"`   // stored
	Created int64  `json:"created"` // ms since 1970
	Format  int    `json:"format"`  // of the projection
	// Sound means that it was read back and matches the log.
	Sound bool `json:"sound"`
	// Fault is why it is not Sound, if known.
	Fault string `json:"fault,omitempty"`
}
