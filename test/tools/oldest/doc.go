// Package oldest runs tests of deploy with the oldest nats-server that lapse supports, which
// the module in server pins. docs/deploy.md names the version.
package oldest
