// Package backup copies the log of a database, and what belongs to it, out of JetStream
// while it is served, and restores it.
//
// A backup is a directory, or a tar of one. backup.json, see manifest.go, lists its files;
// a file that it does not list belongs to a run that was interrupted. STREAM/N.blk are messages in
// the format of NATS's own files (package blocks), so they keep sequence, time, subject and
// content, and NATS takes them back as they are. The parts, in the order of a restore:
//
//   - the log, whose messages are the database
//   - the snapshot that a trimmed log needs; it is a stream of its own
//   - the mutations, some of which may wait to be judged
//   - durable consumers of the log, with what they have acknowledged
//
// A later run to the same directory copies only what is new. Until it has ended,
// backup.json names the files of the run before, so an interrupted run costs nothing but
// its files.
package backup
