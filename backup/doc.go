// Package backup copies the log of a database, and what belongs to it, out of JetStream
// while it is served, and restores it.
//
// A backup is a directory, or a tar of one. backup.json, see manifest.go, lists its files;
// a file that it does not list is of a run that was interrupted. STREAM/N.blk are messages in
// the format of NATS's own files (package blocks), so they keep sequence, time, subject and
// content, and NATS takes them back as they are.
package backup
