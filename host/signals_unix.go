//go:build unix

package host

import (
	"os"
	"os/signal"
	"syscall"
)

// onAcceptClock calls accept for every SIGUSR1 until stop is called. SIGHUP would also
// come when a terminal is closed.
func onAcceptClock(accept func()) (stop func()) { return onSignal(syscall.SIGUSR1, accept) }

// onReload calls reload for every SIGHUP until stop is called.
func onReload(reload func()) (stop func()) { return onSignal(syscall.SIGHUP, reload) }

// onSignal calls f for every signal until stop is called, one call at a time. Signals that
// come during a call count as one, since one place is in the channel: f reads the present
// state, so once is enough. stop returns when f runs no more.
func onSignal(which os.Signal, f func()) (stop func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, which)
	go func() {
		defer close(done)
		for range signals {
			f()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}
