// Package eventlog is the fenced log on JetStream: it appends events, receives their
// acknowledgements, reads the log, finds gaps and damage, and reads the mutations
// stream. It imports observe, schema, projections and NATS.
//
// Start with log.go (open the log), append.go (the fence) and read.go (read and
// fold). gap.go, extent.go and scrub.go find what the log has lost; streams.go checks
// streams before a start; connect.go and together.go are about connections.
package eventlog
