package client

import "time"

// Heartbeat sets the interval in which the server reports that a push consumer lives.
func Heartbeat(d time.Duration) Option { return func(o *options) { o.heartbeat = d } }
