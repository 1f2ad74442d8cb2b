package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/catalog"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// account is a JetStream account whose streams a test fills itself.
type account struct {
	*testing.T
	js jetstream.JetStream
}

func newAccount(t *testing.T) *account {
	t.Helper()
	js, err := jetstream.New(harness.Dial(t, harness.StartNATS(t, harness.NATSOptions(t.TempDir())).ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	return &account{t, js}
}

func (a *account) check(_ any, err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func prefix(db schema.DatabaseName) string { return db.Append() + "secret." }

// add creates all streams that a database may have.
func (a *account) add(db schema.DatabaseName) {
	a.Helper()
	a.check(a.js.CreateStream(a.Context(), eventlog.LogConfig(db, prefix(db))))
	a.check(a.js.CreateStream(a.Context(), jetstream.StreamConfig{Name: db.MutationStream(), Subjects: []string{db.Mutations() + ">"}}))
	kv, err := a.js.CreateKeyValue(a.Context(), jetstream.KeyValueConfig{Bucket: db.LeaseBucket(), LimitMarkerTTL: 1e9})
	a.check(kv, err)
	a.check(kv.Put(a.Context(), "writer", []byte(`{"node":"n1","term":"t"}`)))
	a.check(a.js.CreateObjectStore(a.Context(), jetstream.ObjectStoreConfig{Bucket: db.SnapshotStore() + "7"}))
}

// event appends an event about a document.
func (a *account) event(db schema.DatabaseName, tail, id string) {
	a.Helper()
	a.check(a.js.PublishMsg(a.Context(), &nats.Msg{Subject: prefix(db) + tail, Header: nats.Header{schema.HeaderID: {id}}}))
}

func (a *account) delete(db schema.DatabaseName, want string) {
	a.Helper()
	before := a.streams()
	streams, err := catalog.Delete(a.Context(), a.js, db)
	switch {
	case want == "":
		if a.check(streams, err); len(streams) == 0 || streams[len(streams)-1] != db.LogStream() {
			a.Errorf("it has deleted %q, and the log is not the last", streams)
		}
	case err == nil || !strings.Contains(err.Error(), want):
		a.Errorf("deleting %s: %v, want %q", db, err, want)
	case !slices.Equal(a.streams(), before):
		a.Errorf("it has refused to delete %s, and now there are %q", db, a.streams())
	}
}

func (a *account) streams() (names []string) {
	for name := range a.js.StreamNames(a.Context()).Name() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestDelete: all streams of a database go, and those of no other, whatever their names.
func TestDelete(t *testing.T) {
	a := newAccount(t)
	for _, db := range []schema.DatabaseName{"a", "a-b", "ab"} {
		a.add(db)
	}
	for i, name := range []string{"LAPSE_a_NOTES", "KV_LAPSE_a", "OBJ_LAPSE_a_SNAPSHOT_x"} {
		a.check(a.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{fmt.Sprint("mine.", i)}}))
	}
	all, err := catalog.List(t.Context(), a.js)
	if a.check(all, err); len(all) != 3 {
		t.Fatalf("there are %d databases", len(all))
	}
	if db := all[0]; db.Name != "a" || db.Served || db.Lease != "n1" || db.Snapshots != 1 || len(db.Streams) != 4 || db.Bytes == 0 {
		t.Errorf("the first is %+v", db)
	}
	a.delete("a", "")
	want := []string{"KV_LAPSE_a", "KV_LAPSE_a-b_LEASE", "KV_LAPSE_ab_LEASE", "LAPSE_a-b", "LAPSE_a-b_MUTATIONS", "LAPSE_a_NOTES", "LAPSE_ab", "LAPSE_ab_MUTATIONS",
		"OBJ_LAPSE_a-b_SNAPSHOT_7", "OBJ_LAPSE_a_SNAPSHOT_x", "OBJ_LAPSE_ab_SNAPSHOT_7"}
	if got := a.streams(); !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	if _, err := catalog.Delete(t.Context(), a.js, "a"); !errors.Is(err, catalog.ErrNone) {
		t.Errorf("again: %v", err)
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if _, err := catalog.List(late, a.js); err == nil || !strings.Contains(err.Error(), "connect as the operator") {
		t.Errorf("without an answer: %v", err)
	}
}

// TestDeleteHeld: a database with held documents stays until the last one is released.
func TestDeleteHeld(t *testing.T) {
	const db = schema.DatabaseName("main")
	a := newAccount(t)
	a.add(db)
	a.event(db, "c.DocumentHeld", "a%2E1")
	a.event(db, "c.DocumentHeld", "a%2E1") // for another reason
	a.event(db, "d.DocumentHeld", "a%2E1")
	a.event(db, "c.DocumentReleased", "a%2E1")
	a.delete(db, "has held documents (1, such as d/a%2E1)")
	a.event(db, "d.DocumentReleased", "a%2E1")
	a.event(db, "c.DocumentHeld", "b")
	a.event(db, "c.DocumentDeleted", "c")
	a.delete(db, "such as c/b)")
	a.event(db, "c.DocumentReleased", "b")
	log, err := a.js.Stream(t.Context(), db.LogStream())
	a.check(log, err)
	a.check(nil, log.Purge(t.Context(), jetstream.WithPurgeSequence(3)))
	a.delete(db, "the log begins at 3, and there is no sound snapshot")
}

// TestDeleteServed: a database that a lapse reads stays.
func TestDeleteServed(t *testing.T) {
	const db = schema.DatabaseName("main")
	a := newAccount(t)
	a.add(db)
	c, err := a.js.CreateConsumer(t.Context(), db.MutationStream(), jetstream.ConsumerConfig{Name: schema.ServerConsumer + "x"})
	a.check(c, err)
	a.delete(db+"-other", "there is no such database")
	waiting, err := c.Consume(func(jetstream.Msg) {})
	a.check(waiting, err)
	harness.Eventually(t, "the consumer waits", func() bool {
		all, err := catalog.List(t.Context(), a.js)
		return err == nil && all[0].Served
	})
	a.delete(db, "is served: stop every lapse")
	waiting.Stop()
	a.check(nil, a.js.DeleteConsumer(t.Context(), db.MutationStream(), schema.ServerConsumer+"x"))
	a.delete(db, "")
}

// TestDeleteInterrupted: what a deletion leaves that was interrupted, lapse refuses, and
// another deletion goes on without judging it again. A database that is half restored stays.
func TestDeleteInterrupted(t *testing.T) {
	const db = schema.DatabaseName("main")
	a := newAccount(t)
	a.add(db)
	a.event(db, "c.DocumentHeld", "a")
	config := eventlog.LogConfig(db, prefix(db))
	restored := eventlog.Restored(config, db)
	restored.Subjects, restored.SubjectTransform = config.Subjects, config.SubjectTransform
	a.check(a.js.UpdateStream(t.Context(), restored))
	a.delete(db, "run `lapse restore` again")
	a.check(a.js.UpdateStream(t.Context(), eventlog.Deleted(config)))
	a.check(nil, a.js.DeleteStream(t.Context(), db.MutationStream()))
	_, err := eventlog.OpenExisting(t.Context(), eventlog.Connections{Log: a.js.Conn()}, eventlog.Config{Database: db})
	if err == nil || !strings.Contains(err.Error(), "run `lapse database delete` again") {
		t.Errorf("lapse says %v", err)
	}
	all, err := catalog.List(t.Context(), a.js)
	if a.check(all, err); !strings.Contains(all[0].Interrupted, "lapse database delete") {
		t.Errorf("the list has %+v", all[0])
	}
	a.delete(db, "")
	if rest := a.streams(); len(rest) > 0 {
		t.Errorf("there are still %q", rest)
	}
}
