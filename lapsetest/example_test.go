package lapsetest_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/lapsetest"
)

// A test uses lapsetest.New(t), which fails the test and closes by itself.
func Example() {
	db := lapsetest.Open(lapsetest.At("2026-01-01T00:00:00Z"))
	defer db.Close()
	db.CreateCollection("sessions", `{"defaultTtl":3600}`)
	db.Upsert("sessions", "a", `{"user":"x"}`)

	db.Advance(59 * time.Minute)
	_, lives := db.Document("sessions", "a")
	fmt.Println("after 59 minutes:", lives)

	db.Advance(time.Minute)
	_, lives = db.Document("sessions", "a")
	fmt.Println("after an hour:", lives)

	for _, e := range db.Events(0, client.DocumentExpired) {
		fmt.Println(e.ID, e.TTL, string(e.Body))
	}
	// Output:
	// after 59 minutes: true
	// after an hour: false
	// a 1h0m0s {"id":"a","user":"x"}
}

// A refused request returns the error code that a client gets.
func ExampleDB_Do() {
	db := lapsetest.Open()
	defer db.Close()
	db.CreateCollection("orders", "")
	first := db.Create("orders", "SO05", map[string]int{"total": 5})
	db.Patch("orders", "SO05", `{"total":6}`)

	_, err := db.Do("document.replace", "orders", "SO05", `{"total":7}`, client.IfMatch(first.ETag))
	fmt.Println(errors.Is(err, client.ErrPreconditionFailed))
	_, err = db.Do("document.upsert", "orders", "SO06", `{"total":`)
	fmt.Println(errors.Is(err, client.ErrBadRequest))
	// Output:
	// true
	// true
}

// Run a history from a file, in the format of lapse simulate, and read its outcome.
func ExampleDB_Simulate() {
	db := lapsetest.Open()
	defer db.Close()
	db.Simulate(strings.NewReader(`
{"at":"2015-05-17T10:05:00Z","op":"collection.create","collection":"sessions","body":{"defaultTtl":1800}}
{"at":"2015-05-17T10:05:03Z","op":"document.upsert","collection":"sessions","id":"83.149.9.216","body":{"requests":1}}
{"at":"2015-05-17T10:25:03Z","op":"document.patch","collection":"sessions","id":"83.149.9.216","body":{"requests":2}}
`))
	fmt.Println(db.Now().Format(time.TimeOnly), "pending:", db.Status().PendingExpiry)
	db.Finish()
	fmt.Println(db.Now().Format(time.TimeOnly), "pending:", db.Status().PendingExpiry)
	// Output:
	// 10:25:03 pending: 1
	// 10:55:03 pending: 0
}

// Load the log of a server, which lapse export printed, up to a moment: the first session
// had expired by then, but had no event yet.
func ExampleDB_Load() {
	log := `{"seq":2,"time":"2015-05-17T10:05:00.000Z","type":"CollectionCreated","collection":"sessions","body":{"defaultTtl":30}}
{"seq":3,"time":"2015-05-17T10:05:03.250Z","type":"DocumentCreated","collection":"sessions","id":"a","body":{"id":"a","requests":1}}
{"seq":4,"time":"2015-05-17T10:05:10.000Z","type":"DocumentCreated","collection":"sessions","id":"b","body":{"id":"b","requests":7}}
{"seq":5,"time":"2015-05-17T10:05:33.007Z","type":"DocumentExpired","collection":"sessions","id":"a","previous":3,"deadline":1431857133,"ttl":30,"rule":"collection","body":{"id":"a","requests":1}}
`
	db := lapsetest.Open()
	defer db.Close()
	db.Load(strings.NewReader(log), lapsetest.UntilTime(time.Date(2015, 5, 17, 10, 5, 33, 0, time.UTC)))
	for _, d := range db.Query("sessions", "").Items {
		fmt.Println(d.ID, string(d.Value))
	}
	fmt.Println(db.Seq(), db.Digest())

	// The test may continue from there.
	db.Advance(7 * time.Second)
	_, _ = os.Stdout.WriteString(lapsetest.Lines(db.Events(5)))
	// Output:
	// b {"id":"b","requests":7,"_ts":1431857110,"_etag":"4"}
	// 4 4:34c3fb832b1ae4f2
	// {"seq":5,"time":"2015-05-17T10:05:33.000Z","type":"DocumentExpired","collection":"sessions","id":"a","previous":3,"deadline":1431857133,"ttl":30,"rule":"collection","body":{"id":"a","requests":1}}
	// {"seq":6,"time":"2015-05-17T10:05:40.000Z","type":"DocumentExpired","collection":"sessions","id":"b","previous":4,"deadline":1431857140,"ttl":30,"rule":"collection","body":{"id":"b","requests":7}}
}

func ExampleDB_Query() {
	db := lapsetest.Open()
	defer db.Close()
	db.CreateCollection("orders", lapsetest.Properties(client.TTLPerDocument(), client.IncludePaths("/customer")))
	for i, customer := range []string{"C1", "C2", "C1"} {
		db.Create("orders", fmt.Sprintf("SO%02d", i), map[string]any{"customer": customer, "total": 10 * i})
	}
	page := db.Query("orders", `{"where":"doc.customer == 'C1'","orderBy":[{"path":"/total","desc":true}],"select":["/id","/total"]}`)
	for _, d := range page.Items {
		fmt.Println(string(d.Value))
	}
	fmt.Println(db.Count("orders", `{"where":"doc.total > 5"}`), db.Plan("orders", `{"where":"doc.customer == 'C1'"}`).Index)
	// Output:
	// {"id":"SO02","total":20}
	// {"id":"SO00","total":0}
	// 2 /customer
}

// Submit a mutation through JetStream: the client does not wait for its outcome, which
// the log records.
func ExampleDB_Submit() {
	db := lapsetest.Open()
	defer db.Close()
	db.CreateCollection("orders", "")
	cause := db.Submit("document.replace", "orders", "SO05", `{"total":5}`)
	for _, e := range db.Events(0, client.MutationRejected) {
		fmt.Println(e.Cause == cause, strings.Contains(string(e.Body), "document_not_found"))
	}
	// Output: true true
}

// A session ends half an hour after its last request, and eight hours after its login at
// the latest. Near that end one patch sets it, and no touch follows.
func ExampleDB_GetAndTouch() {
	db := lapsetest.Open(lapsetest.At("2026-01-01T00:00:00Z"))
	defer db.Close()
	db.CreateCollection("sessions", `{"defaultTtl":1800}`)
	login := db.Now()
	db.Create("sessions", "ann", `{"cart":0}`)
	absolute := login.Add(8 * time.Hour)
	final := false
	for { // a request every 10 seconds
		if db.Advance(10 * time.Second); final {
			if _, lives := db.Document("sessions", "ann"); !lives {
				break
			}
		} else if db.Now().Add(30 * time.Minute).Before(absolute) {
			db.GetAndTouch("sessions", "ann", client.MinAge(3*time.Minute))
		} else {
			db.Patch("sessions", "ann", `{"final":true}`, client.ExpireAt(absolute))
			final = true
		}
	}
	fmt.Println("after", db.Now().Sub(login), "and", len(db.Events(0, client.DocumentTouched)), "touches")
	for _, e := range db.Events(0, client.DocumentExpired) {
		fmt.Println(e.Time.Sub(login), string(e.Body))
	}
	// Output:
	// after 8h0m0s and 149 touches
	// 8h0m0s {"id":"ann","cart":0,"final":true,"ttl":1800}
}
