package observe

// Role is what a processor does for its database.
type Role string

const (
	// Writer decides mutations, appends to the log, and answers all requests.
	Writer Role = "writer"
	// Standby folds the log along, answers reads, and becomes the writer when
	// no other process is.
	Standby Role = "standby"
)
