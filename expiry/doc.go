// Package expiry is a hierarchical timing wheel with one-second ticks. The machine
// arms a timer for each expiry queue, at the second of its first entry. The wheel
// has no goroutine and no clock: the caller passes the time to Advance.
//
// The wheel is scheme 7 of Varghese and Lauck, "Hashed and Hierarchical Timing
// Wheels" (SOSP 1987), with 64 slots to a level and a bitmap of the occupied
// ones, so that empty time costs nothing to cross.
package expiry
