package otel

import "go.opentelemetry.io/otel/attribute"

// Names of OpenTelemetry's semantic conventions 1.43 for databases (stable) and messaging (in
// development). Ids of documents are no attributes: they may be secrets, as those of sessions.
const (
	scope = "github.com/lapsedb/lapse/client/otel"

	dbSystem     = attribute.Key("db.system.name")
	dbNamespace  = attribute.Key("db.namespace")
	dbCollection = attribute.Key("db.collection.name")
	dbOperation  = attribute.Key("db.operation.name")
	dbStatus     = attribute.Key("db.response.status_code")
	errorType    = attribute.Key("error.type")

	messagingSystem        = attribute.Key("messaging.system")
	messagingDestination   = attribute.Key("messaging.destination.name")
	messagingOperation     = attribute.Key("messaging.operation.name")
	messagingOperationType = attribute.Key("messaging.operation.type")
	messagingID            = attribute.Key("messaging.message.id")
)
