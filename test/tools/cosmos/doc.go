// Package cosmos runs SDKs of Azure Cosmos DB against the gateway: azcosmos's own emulator
// tests, a program with each of four SDKs, and the programs of docs/cosmos.md.
package cosmos
