// Package cosmos serves the gateway protocol of Azure Cosmos DB's API for NoSQL, as its SDKs
// speak it: a database there is a lapse database, a container a collection, an item a
// document. It reaches the databases only through package client, so it can do nothing that
// a NATS client could not.
package cosmos
