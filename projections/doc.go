// Package projections folds the log into Pebble and reads it back. The projection is
// a cache of the log: it has no write-ahead log, it writes its cursor in the batch of
// the state that the cursor describes, and it is removed and folded again if it does
// not match the log.
//
// A collection has a secondary index for each path that its policy includes. A
// consistent index changes in the batch of its document; Index builds it, in slices,
// for older documents. Index does all the work of lazy indexes. A View reads one
// collection, documents and indexes, at one position of the log.
//
// A Memory is the projection of a simulation, without Pebble.
//
// KEYS.md describes the keys and values.
package projections
