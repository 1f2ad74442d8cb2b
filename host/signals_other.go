//go:build !unix

package host

// onAcceptClock does nothing where there is no SIGUSR1: restart with --accept-clock.
func onAcceptClock(func()) (stop func()) { return func() {} }

// onReload does nothing where there is no SIGHUP: restart.
func onReload(func()) (stop func()) { return func() {} }
