package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// serviceManager speaks the protocol of sd_notify(3) with the service manager that has
// started serve: READY=1 once requests are answered, so that units ordered after lapse find
// it; STOPPING=1 when it begins to stop; and WATCHDOG=1 while it makes progress, if the
// unit has a WatchdogSec. Without NOTIFY_SOCKET all of it does nothing.
//
// A failed notification is a warning: databases are served whether or not systemd hears of
// it.
type serviceManager struct {
	notify func(state string) error // does nothing without a service manager
	logger *slog.Logger
	pings  sync.WaitGroup
	end    chan struct{} // closed when serve has stopped
}

// notifySystemd sends a state to systemd, or to whatever else has set NOTIFY_SOCKET.
func notifySystemd(state string) error {
	_, err := daemon.SdNotify(false, state)
	return err
}

// stops notifies when ctx ends. It returns a function to be called when serve has stopped,
// which waits for the goroutine of the pings. Pings go on while serve stops: a hand-over
// takes its time, and a watchdog that fires then would be a kill.
func (m *serviceManager) stops(ctx context.Context) (stopped func()) {
	m.end = make(chan struct{})
	cancel := context.AfterFunc(ctx, func() { m.send(daemon.SdNotifyStopping) })
	return func() {
		cancel()
		close(m.end)
		m.pings.Wait()
	}
}

// ready tells that requests are answered. While live has no reasons, it pings from now on
// as often as the service manager wants: twice in WatchdogSec.
func (m *serviceManager) ready(live func() (reasons []string)) {
	m.send(daemon.SdNotifyReady)
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.logger.Warn("the service manager's watchdog is off: correct WATCHDOG_USEC and WATCHDOG_PID", "err", err)
	}
	if limit > 0 {
		m.pings.Go(func() { m.ping(limit/2, live) })
	}
}

// ping pings every interval while live has no reasons, until serve has stopped. Without
// pings the service manager kills the process and starts it again. The error is logged once
// for each time that progress stops, before the kill, since the process cannot log anything
// after it.
func (m *serviceManager) ping(interval time.Duration, live func() (reasons []string)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	logged := false
	for {
		select {
		case <-m.end:
			return
		case <-ticker.C:
		}
		reasons := live()
		if len(reasons) == 0 {
			m.send(daemon.SdNotifyWatchdog)
		} else if !logged {
			m.logger.Error("no progress, the service manager may restart lapse: " + strings.Join(reasons, "; "))
		}
		logged = len(reasons) > 0
	}
}

func (m *serviceManager) send(state string) {
	if err := m.notify(state); err != nil {
		m.logger.Warn("cannot notify the service manager of "+state, "err", err)
	}
}
