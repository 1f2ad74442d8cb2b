// Package expiry is the timer that says what is due: a hierarchical timing
// wheel with one-second ticks that holds, for each queue of documents, the
// second of its next bucket. It has no goroutine and no clock; whoever drives
// it says what time it is.
//
// The wheel is scheme 7 of Varghese and Lauck, "Hashed and Hierarchical Timing
// Wheels" (SOSP 1987), with 64 slots to a level and a bitmap of the occupied
// ones, so that empty time costs nothing to cross.
//
// It is lazy. A timer that is moved later or removed leaves its entry in the
// wheel, which is looked at when its slot comes up: then it is thrown away or
// filed anew. So Set and Remove touch the timer, at most the end of a slot, and
// nothing else, which is what counts when a million timers are out of cache.
package expiry
