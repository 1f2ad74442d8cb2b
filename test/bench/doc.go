// Package bench holds the benchmarks of lapse as its clients see it, each
// beside a peer that does the nearest bare thing NATS can do. ../README.md says
// which one shows what.
package bench
