package console

import "time"

// SetWriteTimeout shortens the time after which a slow reader is disconnected.
func (h *Handler) SetWriteTimeout(d time.Duration) { h.writeTimeout = d }

// SetMaxFeeds lowers the number of feeds at once.
func (h *Handler) SetMaxFeeds(n int) { h.feeds = make(chan struct{}, n) }
