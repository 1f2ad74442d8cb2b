package backup_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/backup"
	"github.com/lapsedb/lapse/logread"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

const db = schema.DatabaseName("main")

// scene is a database whose streams a test fills itself.
type scene struct {
	*testing.T
	js     jetstream.JetStream
	log    jetstream.StreamConfig
	prefix string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	js, err := jetstream.New(harness.Dial(t, harness.StartNATS(t, harness.NATSOptions(t.TempDir())).ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{T: t, js: js}
	s.prefix = db.Append() + "secret."
	s.log = eventlog.LogConfig(db, s.prefix)
	s.check(js.CreateStream(t.Context(), s.log))
	s.check(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: db.MutationStream(), Subjects: []string{db.Mutations() + ">"}, DenyDelete: true}))
	return s
}

func (s *scene) check(_ any, err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// event appends an event of a type, which may be anything here.
func (s *scene) event(name string) {
	s.Helper()
	s.check(s.js.Publish(s.Context(), s.prefix+"c."+name, []byte(name)))
}

// raw publishes a message whose header may be one that nats.go refuses.
func (s *scene) raw(subject, header string) {
	s.Helper()
	address, err := url.Parse(s.js.Conn().ConnectedUrl())
	s.check(address, err)
	conn, err := net.Dial("tcp", address.Host)
	s.check(conn, err)
	defer conn.Close()
	s.check(fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false}\r\nHPUB %s %d %d\r\n%s{}\r\nPING\r\n", subject, len(header), len(header)+2, header))
	answer := bufio.NewScanner(conn)
	for answer.Scan() && answer.Text() != "PONG" {
	}
	s.check(nil, answer.Err())
}

func (s *scene) save(dir string) *backup.Manifest {
	s.Helper()
	m, err := backup.Save(s.Context(), s.js, db, dir, nil)
	s.check(m, err)
	verified, err := backup.Verify(dir)
	s.check(verified, err)
	if verified.Log().Last != m.Log().Last {
		s.Errorf("it is verified up to %d, and was saved up to %d", verified.Log().Last, m.Log().Last)
	}
	return m
}

// messages returns all that a stream has, with headers sorted.
func messages(s *scene, js jetstream.JetStream, name string) (all []string, state jetstream.StreamState) {
	s.Helper()
	stream, err := js.Stream(s.Context(), name)
	s.check(stream, err)
	state = stream.CachedInfo().State
	source := logread.Stream{JS: js, Name: name}
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := source.Get(s.Context(), seq)
		header, _ := source.Header(s.Context(), seq)
		if err != nil && m == nil {
			all = append(all, err.Error())
			continue
		}
		lines := strings.Split(string(header), "\r\n")
		slices.Sort(lines)
		all = append(all, strings.Join(append(lines, m.Subject, string(m.Data), m.Time.String()), "\n"))
	}
	return all, state
}

// TestVerbatim: what is restored elsewhere has the sequences, times, subjects, headers and
// bodies of the original, also headers that nats.go cannot read, and ends where that ends.
func TestVerbatim(t *testing.T) {
	s := newScene(t)
	s.event("DocumentCreated")
	mutations := db.Mutations() + "document.upsert.c.a"
	s.check(s.js.PublishMsg(s.Context(), &nats.Msg{Subject: mutations, Data: []byte("{}"), Header: nats.Header{"b": {"2", "1"}, "A": {" x"}, "Nats-Msg-Id": {"i"}}}))
	s.raw(mutations, "NATS/1.0\r\nno colon\r\n\r\n")
	s.raw(mutations, "NATS/1.0\r\nNats-Msg-Id:tight\r\nx: y\r\n\r\n")
	s.event("DocumentReplaced")

	dir := t.TempDir()
	m := s.save(dir)
	other := newScene(t)
	if err := backup.Restore(t.Context(), other.js, dir, m, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{db.LogStream(), db.MutationStream()} {
		want, state := messages(s, s.js, name)
		got, restored := messages(s, other.js, name)
		if !slices.Equal(got, want) || state.FirstSeq != restored.FirstSeq || state.LastSeq != restored.LastSeq {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}

	// All mutations are trimmed, also those that the backup does not have.
	s.check(s.js.Publish(s.Context(), mutations, nil))
	stream, err := s.js.Stream(s.Context(), db.MutationStream())
	s.check(stream, err)
	if err := stream.Purge(s.Context()); err != nil {
		t.Fatal(err)
	}
	m = s.save(dir)
	if err := backup.Restore(t.Context(), other.js, dir, m, backup.Options{}); err == nil || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("over another log: %v", err)
	}
	if err := backup.Restore(t.Context(), other.js, dir, m, backup.Options{Replace: true}); err != nil {
		t.Fatal(err)
	}
	if _, state := messages(s, other.js, db.MutationStream()); state.LastSeq != 4 {
		t.Errorf("the mutations end at %d, want 4", state.LastSeq)
	}
}

// TestInterrupted: neither lapse nor a backup takes the log of a restore that was interrupted,
// and another restore goes over it without being told. What an interrupted backup has written
// goes with the next run.
func TestInterrupted(t *testing.T) {
	s := newScene(t)
	s.event("DocumentCreated")
	dir := filepath.Join(t.TempDir(), "day[1]") // no pattern
	m := s.save(dir)
	half := eventlog.Restored(s.log, db)
	half.Subjects, half.SubjectTransform = s.log.Subjects, s.log.SubjectTransform
	s.check(s.js.UpdateStream(s.Context(), half))
	connections := eventlog.Connections{Log: s.js.Conn()}
	if _, err := eventlog.OpenExisting(t.Context(), connections, eventlog.Config{Database: db}); err == nil || !strings.Contains(err.Error(), "run `lapse restore` again") {
		t.Errorf("lapse says %v", err)
	}
	if _, err := backup.Save(t.Context(), s.js, db, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "run `lapse restore` again") {
		t.Errorf("a backup says %v", err)
	}
	s.event("DocumentReplaced")
	if err := backup.Restore(t.Context(), s.js, dir, m, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.OpenExisting(t.Context(), connections, eventlog.Config{Database: db})
	s.check(log, err)
	log.Close()
	if _, state := messages(s, s.js, db.LogStream()); state.LastSeq != 1 {
		t.Errorf("the log ends at %d, want 1", state.LastSeq)
	}

	// A restore ends after it has removed what was there.
	file, away := filepath.Join(dir, db.LogStream(), "1.blk"), filepath.Join(t.TempDir(), "1.blk")
	check := func() error { return eventlog.CheckStreams(t.Context(), connections, eventlog.Config{Database: db}) }
	s.check(nil, os.Rename(file, away))
	if err := backup.Restore(t.Context(), s.js, dir, m, backup.Options{Replace: true}); err == nil {
		t.Error("it has restored a file that is not there")
	}
	if err := check(); err == nil || !strings.Contains(err.Error(), "run `lapse restore` again") {
		t.Errorf("lapse says %v", err)
	}
	s.check(nil, os.Rename(away, file))
	s.check(nil, backup.Restore(t.Context(), s.js, dir, m, backup.Options{}))
	if err := check(); err != nil && strings.Contains(err.Error(), "lapse restore") {
		t.Errorf("lapse says %v", err)
	}

	interrupted := filepath.Join(dir, db.LogStream(), "7.blk")
	if err := backup.Unpack(strings.NewReader("cut"), dir); err == nil || !strings.Contains(err.Error(), "no tar of a backup") {
		t.Errorf("a tar that is cut: %v", err)
	}
	s.check(nil, os.WriteFile(interrupted, nil, 0o600))
	s.save(dir)
	if _, err := os.Stat(interrupted); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of an interrupted run is still there: %v", err)
	}
}

// TestOtherLog: a run refuses a directory with a backup of another log, or of one that ended
// later or had other events.
func TestOtherLog(t *testing.T) {
	s, other := newScene(t), newScene(t)
	s.event("DocumentCreated")
	s.event("DocumentReplaced")
	other.event("DocumentCreated")
	dir := t.TempDir()
	s.save(dir)
	if _, err := backup.Save(t.Context(), other.js, db, dir, nil); err == nil || !strings.Contains(err.Error(), "ends at 1, and the backup at 2") {
		t.Errorf("of a log that ends before: %v", err)
	}
	other.event("DocumentReplaced")
	if _, err := backup.Save(t.Context(), other.js, db, dir, nil); err == nil || !strings.Contains(err.Error(), "is not that of the backup") {
		t.Errorf("of other events: %v", err)
	}
	s.check(nil, other.js.DeleteStream(t.Context(), db.LogStream()))
	s.check(other.js.CreateStream(t.Context(), eventlog.LogConfig(db, db.Append()+"another.")))
	if _, err := backup.Save(t.Context(), other.js, db, dir, nil); err == nil || !strings.Contains(err.Error(), "holds another log") {
		t.Errorf("of another log: %v", err)
	}
	s.save(dir)
}

// TestGap: a log that was trimmed beyond the backup is copied again from its new beginning,
// with the sound snapshot that it then needs.
func TestGap(t *testing.T) {
	s := newScene(t)
	s.event("DocumentCreated")
	dir := t.TempDir()
	s.save(dir)
	s.event("DocumentReplaced")
	s.event("DocumentDeleted")
	stream, err := s.js.Stream(t.Context(), db.LogStream())
	s.check(stream, err)
	s.check(nil, stream.Purge(t.Context(), jetstream.WithPurgeSequence(3)))
	if _, err := backup.Save(t.Context(), s.js, db, dir, nil); err == nil || !strings.Contains(err.Error(), "run `lapse snapshot create`") {
		t.Errorf("without a snapshot: %v", err)
	}
	if m, err := backup.Verify(dir); err != nil || m.Log().Last != 1 {
		t.Errorf("the backup before has %+v, %v", m, err)
	}
	snapshot, err := s.js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: db.SnapshotStore() + "2"})
	s.check(snapshot, err)
	s.check(snapshot.Put(t.Context(), jetstream.ObjectMeta{Name: "projection.tar.zst", Metadata: map[string]string{
		"lapse-snapshot": `{"seq":2,"sound":true}`, "lapse-cursor": `{}`, "lapse-stream": "any"}}, strings.NewReader(strings.Repeat("x", 1<<20))))
	m := s.save(dir)
	if log := m.Log(); log.First != 3 || log.Last != 3 || log.Messages != 1 {
		t.Errorf("it has %+v", log)
	}
	other := newScene(t)
	if err := backup.Restore(t.Context(), other.js, dir, m, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, state := messages(other, other.js, db.LogStream()); state.FirstSeq != 3 || state.LastSeq != 3 {
		t.Errorf("the log restored is %+v", state)
	}
	restored, err := other.js.ObjectStore(t.Context(), db.SnapshotStore()+"2")
	s.check(restored, err)
	content, err := restored.GetBytes(t.Context(), "projection.tar.zst")
	if s.check(nil, err); len(content) != 1<<20 {
		t.Errorf("the snapshot restored has %d bytes", len(content))
	}
}
