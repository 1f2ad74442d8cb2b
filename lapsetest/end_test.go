package lapsetest_test

import (
	"fmt"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/lapsetest"
)

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
