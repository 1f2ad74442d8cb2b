package console

import "time"

// SetWriteTimeout shortens the time after which a slow reader is disconnected.
func (h *Handler) SetWriteTimeout(d time.Duration) { h.writeTimeout = d }
