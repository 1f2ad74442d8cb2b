// Package observe defines what a processor reports: each event is a type with
// its fields and its log line. Logs, metrics, /readyz and tests all read the same
// EventListener. It imports only schema.
//
// Start with listener.go. The events are in role.go, log.go, requests.go, clock.go
// and projection.go; loglimit.go limits how much reaches the log.
package observe
