// Package clients reads the log with the nats command and with nats.js, as users do.
package clients
