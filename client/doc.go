// Package client is the Go client of lapse: documents with a time to live
// over NATS.
//
//	c, err := client.Connect("nats://127.0.0.1:4222")
//	sessions, err := c.CreateCollection(ctx, "sessions", client.DefaultTTL(30*time.Minute))
//	item, err := client.Upsert(ctx, sessions, "83.149.9.216", Session{Requests: 1}, client.TTL(time.Minute))
//	item, err = client.Replace(ctx, sessions, item.ID, next, client.IfMatch(item.ETag))
//
//	for item, err := range client.Query[Session](ctx, sessions, client.Where("doc.requests > 100", nil)) { … }
//	for x, err := range client.Expirations[Session](ctx, c, client.Durable("mailer")) { … }
//	err = c.Handle(ctx, handle, client.Durable("mailer"), client.Workers(8), client.Poison(5, quarantine))
//
// An id is a string and a moment a time.Time, in UTC. Forecast and Status are the JSON of
// the replies, with seconds and milliseconds since 1970 as there.
//
// Errors have a code: match them with errors.Is against the Err variables of this package,
// or inspect them with errors.As and *Error. A request that succeeded, but whose document
// does not decode, is a *DecodeError instead: a write is applied. A document fits if it
// does without members that lapse adds, so a map[string]string decodes without _ts. A Client and its collections are
// safe for concurrent use.
package client
