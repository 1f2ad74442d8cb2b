// Package cosmos runs SDKs of Azure Cosmos DB against the gateway: azcosmos's own emulator
// tests, and a program with @azure/cosmos.
package cosmos
