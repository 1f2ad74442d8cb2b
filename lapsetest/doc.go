// Package lapsetest is a lapse database in memory for tests, without NATS. Its clock stands
// still until the test moves it, so that nothing waits for a deadline.
//
//	func TestSession(t *testing.T) {
//		db := lapsetest.New(t, lapsetest.At("2026-01-01T00:00:00Z"))
//		db.CreateCollection("sessions", `{"defaultTtl":3600}`)
//		db.Upsert("sessions", "a", `{"user":"x"}`)
//		db.Advance(59 * time.Minute)
//		if _, ok := db.Document("sessions", "a"); !ok {
//			t.Error("the session is gone too soon")
//		}
//		seq := db.Seq()
//		db.Advance(time.Minute)
//		db.WantEvents(seq+1, `{"type":"DocumentExpired","id":"a","ttl":3600,"rule":"collection"}`)
//	}
//
// It runs the code of lapse serve, so replies and the log are the same to the byte. Each
// document expires exactly at its deadline. The same calls give the same log on any
// machine.
//
// A test may start from a history: Simulate runs mutations as lapse simulate does, Load
// loads a log that lapse export printed, up to any event or moment.
//
// Calls fail the test if the request fails. For a request that should be refused use Do,
// whose error has the code:
//
//	_, err := db.Do("document.replace", "sessions", "a", `{}`, client.IfMatch("7"))
//	if !errors.Is(err, client.ErrPreconditionFailed) { … }
//
// Tests with databases of their own may run in parallel, and in testing/synctest bubbles.
// A database is safe for concurrent use. For programs that use the Go client see package
// bubble.
package lapsetest
