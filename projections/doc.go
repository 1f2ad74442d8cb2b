// Package projections folds the log into Pebble and reads it back. The
// projection is a cache of the log: it has no write-ahead log of its own, its
// cursor is written in the same batch as the state it belongs to, and whenever
// it does not fit the log it is thrown away and folded again.
//
// KEYS.md describes the keys and values.
package projections
