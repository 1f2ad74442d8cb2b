//go:build unix

package host

import (
	"os"
	"os/signal"
	"syscall"
)

// onAcceptClock calls accept for every SIGUSR1 until stop is called. SIGHUP would also
// come when a terminal is closed.
func onAcceptClock(accept func()) (stop func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		defer close(done)
		for range signals {
			accept()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}
