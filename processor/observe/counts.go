package observe

// What is counted too often for an EventListener.

// Answered is how many requests of an operation had a code, "other" for one that
// lapse does not use.
type Answered struct {
	Operation, Code string
	Requests        uint64
}

// Queue is something that waits in a place with room for so much.
type Queue struct {
	Name           string
	Length, Places int
}
