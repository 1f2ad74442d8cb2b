// Package expiry is the timer that says what is due: a hierarchical timing
// wheel with one-second ticks that holds, for each queue of documents, the
// second of its next bucket. It has no goroutine and no clock; whoever drives
// it says what time it is.
//
// The wheel is scheme 7 of Varghese and Lauck, "Hashed and Hierarchical Timing
// Wheels" (SOSP 1987), with 64 slots to a level and a bitmap of the occupied
// ones, so that empty time costs nothing to cross.
package expiry
