// Package projections folds the log into Pebble and reads it back. The
// projection is a cache of the log: it has no write-ahead log of its own, its
// cursor is written in the same batch as the state it belongs to, and whenever
// it does not fit the log it is thrown away and folded again.
//
// A collection has a secondary index for each path that its policy includes.
// Consistent ones change in the batch of their document; Index builds them, in
// slices, for documents that were there before them, and does all for lazy ones.
// A View reads one collection, documents and indexes, at one position.
//
// A Memory is the little of a projection that a simulation needs, without Pebble.
//
// KEYS.md describes the keys and values.
package projections
