// Package gate carries the JetStream requests of clients into the account of the
// streams, and replies to those that clients may not make. It drops requests that name a
// reply subject other than an inbox: JetStream publishes there with nobody's permissions.
// Requests of another account have one of NATS, and say which account it is.
// Package embedded and nats.conf say which accounts it needs, and why there are two.
//
// Its operations and permissions are the one list of who may use which subject: the
// embedded server, nats.conf and the manual have theirs from it.
//
// It imports schema. Start reading at Gate; then operations.go (the requests, one by one),
// permissions.go (who may use which subject),
// streams.go, create.go and consumer.go (which consumers a client may create), pull.go
// (reading), edit.go, account.go (requests of other accounts), owner.go (whose a consumer
// is), limit.go, inbox.go and version.go.
package gate
