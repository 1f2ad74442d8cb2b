package schema

import "testing"

func TestDatabaseSubjectsAndStreams(t *testing.T) {
	const db DatabaseName = "main"
	for got, want := range map[string]string{
		db.LogStream():      "LAPSE_main",
		db.MutationStream(): "LAPSE_main_MUTATIONS",
		db.API():            "lapse.main.api.",
		db.Mutations():      "lapse.main.mutations.",
		db.Events():         "lapse.main.events.",
		db.Append():         "lapse.main.append.",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseStream(t *testing.T) {
	for name, want := range map[string]struct {
		db            DatabaseName
		mutations, ok bool
	}{
		"LAPSE_a-1":           {"a-1", false, true},
		"LAPSE_a-1_MUTATIONS": {"a-1", true, true},
		"LAPSE_":              {},
		"LAPSE__MUTATIONS":    {},
		"LAPSE_a_LEASE":       {},
		"KV_LAPSE_a":          {},
		"a_MUTATIONS":         {},
	} {
		db, mutations, ok := ParseStream(name)
		if ok != want.ok || ok && (db != want.db || mutations != want.mutations) {
			t.Errorf("%s is of database %q, mutations %t, %t", name, db, mutations, ok)
		}
	}
}

func TestStreamOwner(t *testing.T) {
	for name, want := range map[string]DatabaseName{
		"LAPSE_a-1":                 "a-1",
		"LAPSE_a-1_MUTATIONS":       "a-1",
		"KV_LAPSE_a-1_LEASE":        "a-1",
		"OBJ_LAPSE_a-1_SNAPSHOT_42": "a-1",
		"LAPSE_a_LEASE":             "",
		"LAPSE_a_MUTATIONS_":        "",
		"KV_LAPSE_a":                "",
		"KV_LAPSE_a_MUTATIONS":      "",
		"OBJ_LAPSE_a_SNAPSHOT_":     "",
		"OBJ_LAPSE_a_SNAPSHOT_042":  "",
		"OBJ_LAPSE_a_SNAPSHOT_4x":   "",
		"MY_LAPSE_a":                "",
		"LAPSE_":                    "",
		"orders":                    "",
	} {
		if db, ok := StreamOwner(name); ok != (want != "") || ok && db != want {
			t.Errorf("%s is of database %q, %t", name, db, ok)
		}
	}
}

func TestSplitEventSubject(t *testing.T) {
	for _, test := range []struct {
		event              Event
		collection, tokens string
	}{
		{Event{Type: DocumentExpired, Collection: "orders"}, "orders", "orders.DocumentExpired"},
		{Event{Type: MutationRejected, Collection: InvalidCollection}, "_invalid", "_invalid.MutationRejected"},
		{Event{Type: WriterStarted, Collection: InternalCollection}, "_", "_.WriterStarted"},
	} {
		if got := test.event.EventTokens(); got != test.tokens {
			t.Errorf("got %q, want %q", got, test.tokens)
		}
		collection, eventType, ok := SplitEventSubject(DatabaseName("main").Events() + test.event.EventTokens())
		if !ok || collection != test.collection || eventType != test.event.Type.String() {
			t.Errorf("%s is split into %q and %q, %v", test.tokens, collection, eventType, ok)
		}
	}
	if _, _, ok := SplitEventSubject("orders"); ok {
		t.Error("one token is accepted as an event's subject")
	}
}

func TestIsInbox(t *testing.T) {
	for _, inbox := range []string{"_INBOX.x", "_INBOX.producer.x.1", "_INBOXES.x", "_MINE.x", "my.inbox.x.1", "lapses.x"} {
		if !IsInbox(inbox) {
			t.Errorf("%s is refused", inbox)
		}
	}
	const db DatabaseName = "main"
	for _, other := range []string{
		"", ".", "x", "_INBOX", "_INBOX.", ".x", "_INBOX..x", "_INBOX.*", "_INBOX.>", "*.x", ">", "_INBOX.a b", "_INBOX.a\r\nPUB x",
		"lapse.x", db.API() + "document.get.c.a", db.Mutations() + "document.upsert.c.a", db.Events() + "c.DocumentCreated", db.Append() + "guess.c.DocumentCreated",
		"$JS.API.INFO", "$JS.ACK.x.y", "$KV.bucket.key", "$O.bucket.C.x", "$SYS.REQ.SERVER.PING", "$SRV.PING", "$MQTT.x", "_R_.x", "_GATE.x", "_CLIENTS._INBOX.x", "_PROCESSOR.x",
	} {
		if IsInbox(other) {
			t.Errorf("%q is accepted as an inbox", other)
		}
	}
}

func TestIsReply(t *testing.T) {
	for _, reply := range []string{"_INBOX.x", "my.inbox.x.1", "_R_.oVbPyz.1kbPxV", "_R_.oVbPyz.1kbPxV.2kbPxV"} {
		if !IsReply(reply) {
			t.Errorf("%s is refused", reply)
		}
	}
	for _, other := range []string{
		"", "x", "_R_", "_R_.", "_R_.x", "_R_..x", "_R_.x.", "_R_.x.*", "_R_.x.>", "_R_.a b.x", "_R_._R_.x.y", "_R_._GATE.x", "_R_.$JS.ACK.x", "_R_.lapse.x",
		"_GR_.x.y", "_GATE.x", "lapse.x", "$JS.API.INFO", "$JS.ACK.LAPSE_main.c.1.1.1.1.1",
	} {
		if IsReply(other) {
			t.Errorf("%q is accepted as a reply subject", other)
		}
	}
	if IsInbox("_R_.oVbPyz.1kbPxV") {
		t.Error("a name within a body may be a reply subject of NATS")
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"lapse.main.api.>", "lapse.main.api.status", true}, {"lapse.main.api.>", "lapse.main.api.document.get.c.x", true},
		{"lapse.main.api.>", "lapse.main.api", false}, {"lapse.main.api.>", "lapse.main.api.", false}, {"lapse.main.api.>", "lapse.other.api.status", false},
		{"lapse.main.api.document.get.>", "lapse.main.api.document.upsert.c.x", false}, {"lapse.main.api.document.get.>", "$JS.API.STREAM.DELETE.LAPSE_main", false},
		{"$JS.API.STREAM.INFO.*", "$JS.API.STREAM.INFO.LAPSE_main", true}, {"$JS.API.STREAM.INFO.*", "$JS.API.STREAM.DELETE.LAPSE_main", false},
		{"$JS.API.STREAM.INFO.*", "$JS.API.STREAM.INFO", false}, {"$JS.API.STREAM.INFO.*", "$JS.API.STREAM.INFO.a.b", false}, {"a.*.c", "a.b.c", true}, {"a.*.c", "a..c", false},
		{"a", "a", true}, {"a", "", false}, {"a", "b", false},
	} {
		if got := Covers(c.pattern, c.subject); got != c.want {
			t.Errorf("Covers(%q, %q) = %v", c.pattern, c.subject, got)
		}
	}
}
