// Package watching tests the alert rules and the dashboard in deploy with
// Prometheus's own parser and engine.
package watching
