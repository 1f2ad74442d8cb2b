// Package lapsetest tests what lapse makes of documents and deadlines: a whole
// database in memory, without NATS and without waiting, whose clock stands still
// until the test moves it.
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
// It decides, folds, expires and answers by the same code as lapse serve, so
// replies and the log are the same to the byte. What is due expires at its very
// second. The same calls give the same log, on any machine.
//
// A test may also begin with a history: Simulate runs mutations as in a file for
// lapse simulate, Load takes a log that lapse export printed up to any event or
// moment, and the test goes on from there.
//
// Calls that are to succeed fail the test if they don't. What is to be refused
// is asked with Do, whose error has the code:
//
//	_, err := db.Do("document.replace", "sessions", "a", `{}`, client.IfMatch("7"))
//	if !errors.Is(err, client.ErrPreconditionFailed) { … }
//
// Tests with databases of their own may run in parallel, and inside testing/synctest
// bubbles; several goroutines may use one database. For programs that use the Go
// client see package bubble beside this one.
package lapsetest
