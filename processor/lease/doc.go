// Package lease elects the writer: a key in a NATS KV bucket with a TTL, which the
// writer renews and a standby takes when it expires. It imports schema.
//
// Start with lease.go: a process calls Await, Keep and Release in that order. expired.go
// recognizes an expired lease that NATS keeps; check.go checks a bucket before a start.
package lease
