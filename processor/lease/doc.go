// Package lease elects the writer: a key in a NATS KV bucket with a TTL, which the
// writer renews and a standby takes when it expires. It imports schema.
//
// Start with lease.go: Await, Keep and Release are its life; check.go checks a
// bucket before a start.
package lease
