package console

import "time"

// SetWriteTimeout shortens the time after which a slow reader is cut off.
func (h *Handler) SetWriteTimeout(d time.Duration) { h.writeTimeout = d }
