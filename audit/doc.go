// Package audit reads a log from beginning to end and reports violations of the contract:
// a version that came due and did not expire, or twice, or too early; a document that
// outlives its expiry or comes back; a broken chain of versions; a time that goes back.
//
// It is a second implementation of the rules, and must not depend on the code that it
// checks: it shares the encoding of events, documents and properties with the processor,
// but not the code that decides, folds, or orders by deadline.
//
// Collections are in memory, documents in a temporary Pebble store. Its keys, with
// numbers of eight bytes, big-endian:
//
//	0 incarnation id             the state of the document
//	1 incarnation deadline id    live documents with a ttl of their own
//	2 incarnation _ts id         live documents that inherit the collection's ttl
//
// The incarnation numbers the collections by their CollectionCreated events. Seconds have
// their sign bit flipped, so that those before 1970 sort first. From the last two orders
// the audit finds the due documents under any policy, without scanning the others.
package audit
