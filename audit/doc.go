// Package audit reads a log from one end to the other and names what in it is
// against the contract: versions that came due and did not expire, or twice, or
// too early; documents that live on or come back; chains that are broken; time
// that goes back.
//
// It is a second reading of the rules. What it says must not depend on the code
// it judges, so it shares with the processor how events, documents and
// properties are written, and nothing of how they are decided, folded or put
// in order of deadlines.
//
// Collections are held in memory, documents in a Pebble of its own that goes
// with the audit. Its keys, by numbers of eight bytes, big-endian:
//
//	0 incarnation id             what became of the document
//	1 incarnation deadline id    lives, with a ttl of its own
//	2 incarnation _ts id         lives, and inherits the collection's
//
// The incarnation is a number of the audit's own for what one CollectionCreated
// made; seconds have their sign bit turned, so that those before 1970 come
// first. The last two orders say at any moment and under any policy what is
// due, without a look at documents that are not.
package audit
