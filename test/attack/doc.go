// Package attack makes the input that lapse and NATS must withstand: malformed
// requests, mutations and events (Source), floods from clients that do not wait
// for replies (Client), and requests whose reply subject makes NATS publish on
// the attacker's behalf (Targets, Requests).
package attack
