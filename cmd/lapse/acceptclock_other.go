//go:build !unix

package main

// onAcceptClock does nothing where there is no SIGUSR1: restart with --accept-clock.
func onAcceptClock(func()) (stop func()) { return func() {} }
