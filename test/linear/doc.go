// Package linear records operations of clients on documents, with their replies, and
// checks that they are linearizable: that there is one order of all operations in which
// each takes effect between its call and its return, with the result of its reply.
// Documents expire by themselves in that order, on the second.
//
// It knows nothing of lapse but its contract. Operations with an unknown outcome, because
// the reply was lost, may have happened or not, at any time after their call. The search
// is by anishathalye/porcupine; one that does not end in time is a failure.
package linear
