// Package bench holds the benchmarks of lapse as its clients see it, each
// beside a peer: the nearest bare thing that NATS can do, or SQLite.
// test/README.md says which one shows what.
package bench
