// Package gate carries the JetStream requests of clients into the account of the
// streams, and refuses those that name a reply or deliver subject other than an inbox:
// JetStream publishes there with nobody's permissions. Package embedded and nats.conf say
// which accounts it needs, and why there are two.
//
// It imports schema. Start reading at Gate; then create.go and consumer.go (which
// consumers a client may make), pull.go (reading) and limit.go.
package gate
