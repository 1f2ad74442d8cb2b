// Package console is the web console of a database: its pages, and the HTTP API that they
// use. It accesses the database only through package client, so it can do nothing that a
// NATS client could not.
//
// New returns a handler that works under any prefix (http.StripPrefix), for a server with
// limits on time and connections such as that of package webserver.
package console
