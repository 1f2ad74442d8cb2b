// Package blocks reads the files in which JetStream keeps a stream, and changes
// none.
//
// NATS repairs those files while it opens them: it cuts a file off at the first
// record that it cannot read, sound ones after it included, and forgets files
// that are missing. Only a check before that can distinguish damage from what a
// kill leaves.
//
// The format is that of nats-server 2.15 (server/filestore.go). A directory
// holds files N.blk of records:
//
//	length(4) sequence(8) time(8) subject length(2) subject
//	[header length(4) header] body checksum(8)
//
// The highest bit of the length says that there is a header. Of the sequence the
// highest bit says that the message was erased, the next one that the record is
// a tombstone: it removes the message of that sequence. The checksum is a
// HighwayHash, its key the SHA-256 of "STREAM-N", over all but the two lengths
// and the header's. index.db, written now and then and at a clean stop, says
// where the stream ended then.
package blocks
