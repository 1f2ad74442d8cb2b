// Package gate stands between clients and JetStream, which publishes its
// answers wherever a request says, with nobody's permissions. The accounts that
// it needs, and why there are two, are in package embedded and in
// nats.conf.
package gate
