package observe

import (
	"log/slog"
	"time"
)

// ClockDoubted reports that the machine's clock is not trusted: nothing expires and
// writes are rejected. Off is how far it is ahead of the expected time.
type ClockDoubted struct {
	Why string
	Off time.Duration
}

func (e ClockDoubted) Log(to *slog.Logger) {
	to.Error("the clock is not trusted: nothing expires and writes are rejected until it is right, or accepted by SIGUSR1 or a start with --accept-clock",
		"why", e.Why, "off", e.Off)
}

// ClockTrusted ends ClockDoubted, which lasted After. Refused counts the requests
// rejected because of the clock since the start.
type ClockTrusted struct {
	After   time.Duration
	Refused uint64
}

func (e ClockTrusted) Log(to *slog.Logger) {
	to.Info("the clock is right again", "after", e.After, "refused", e.Refused)
}

// ClockAccepted reports that an operator accepted the clock at Wall, Off from the
// expected time. Still is how long time stands still until the clock catches up;
// Needless means that the clock was trusted already.
type ClockAccepted struct {
	Wall     time.Time
	Off      time.Duration
	Still    time.Duration
	Needless bool
}

func (e ClockAccepted) Log(to *slog.Logger) {
	if e.Needless {
		to.Info("the clock is trusted, there is nothing to accept")
		return
	}
	to.Warn("the clock is accepted as it is", "wall", Timestamp(e.Wall), "off", e.Off)
	if e.Still > 0 {
		to.Warn("log time is paused until the clock catches up: nothing expires before that", "for", e.Still)
	}
}

// ServerTimeUnknown reports that the NATS server did not return its time at the
// start, so the clock is not compared with it.
type ServerTimeUnknown struct{ Err error }

func (e ServerTimeUnknown) Log(to *slog.Logger) {
	to.Warn("the NATS server does not return its time", "err", e.Err)
}
