// Package clock decides whether the machine's clock is trusted, and returns the
// time that the log is stamped with: it never goes back and follows no step. It
// imports observe and schema.
//
// Start with guard.go, the rules as a pure state machine; clock.go drives it and
// memory.go keeps its origin over restarts.
package clock
