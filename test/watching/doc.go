// Package watching tests what is made for watching lapse: the alert rules and
// the dashboard in deploy. It is a module of its own, so that Prometheus is no
// dependency of lapse.
package watching
