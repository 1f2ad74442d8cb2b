// Package linear records what clients did to documents and what they were
// told, and checks that it is linearizable: that there is one order of all of
// it, in which each operation stands between its call and its return and comes
// out as it was told. Documents expire by themselves in that order, on the
// second.
//
// It knows nothing of lapse but its contract. Operations of which nobody knows
// the outcome, because the answer was lost, may have happened or not, at any
// time after their call. The search is by anishathalye/porcupine; one that does
// not end in time is a failure.
package linear
