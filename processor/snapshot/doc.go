// Package snapshot copies the projection to JetStream, verifies the copies, restores
// the projection from them, and trims the log below them (retention). It imports
// eventlog, clock, observe, projections, schema and NATS.
//
// Start with snapshots.go (a snapshot and its states); create.go makes, download.go
// reads and verifies them; restore.go opens or rebuilds the projection at a start;
// retention.go is the periodic round.
package snapshot
