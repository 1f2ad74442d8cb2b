// Package processortest has what the tests of several rooms of package processor need. Only
// tests import it.
//
// New starts a processor behind a NATS server, as a Wire: requests as text, and replies that
// are checked. Bubble does so in a synctest bubble, where minutes pass at once and a test
// knows the millisecond. InCrew has several processes of one database there, and InOutage
// connections that fail. Inside reaches the rooms of a running processor.
package processortest
