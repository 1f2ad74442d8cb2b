// Package cosmos serves the gateway protocol of Azure Cosmos DB's API for NoSQL, as its SDKs
// speak it: a database there is a lapse database, a container a collection, an item a
// document. It reaches the databases only through package client, so it can do nothing that
// a NATS client could not. How names and ids correspond:
//
//	database salesdb        database salesdb         nameOf
//	container orders        collection orders        definition.go: metadata cosmos
//	item SO05 of C1         document C1:SO05         partition.go
//	_etag "\"41\""          version 41
//	expiry                  DocumentExpired          feed.go: a delete with timeToLiveExpired
//
// The way of a request: gateway.go admits, authorizes and limits it, route.go finds its
// handler, and databases.go, containers.go, items.go, batch.go, query.go and feed.go
// answer.
package cosmos
