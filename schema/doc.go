// Package schema is lapse's vocabulary: names, ids, documents, the TTL rule,
// mutations, events, errors, and how each is written as a subject, a header or
// JSON. It knows neither NATS nor Pebble; every other package imports it.
package schema
