package console

import "time"

// SetWriteTimeout shortens the time after which a slow reader is disconnected.
func (h *Handler) SetWriteTimeout(d time.Duration) { h.writeTimeout = d }

// KeptSamples returns how many samples are kept of n.
func KeptSamples(n int) int {
	var s samples
	for range n {
		s.add(sample{})
	}
	return len(s.all)
}
