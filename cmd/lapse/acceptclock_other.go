//go:build !unix

package main

// onAcceptClock has no signal to wait for: a start with --accept-clock does it.
func onAcceptClock(func()) (stop func()) { return func() {} }
