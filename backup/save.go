package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/catalog"
	"github.com/lapsedb/lapse/logread"
	"github.com/lapsedb/lapse/processor/embedded/blocks"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/schema"
)

const (
	fileBytes = 8 << 20 // of messages, after which a file ends

	// wholeBytes is the size from which on the first copy of a stream is by the means of NATS.
	wholeBytes = 1 << 20
	maxFile    = 64 << 20

	// Of messages that are requested and not written yet.
	aheadMessages = 8192
	aheadBytes    = 32 << 20

	consumerTTL = time.Minute
)

// Steps of a run:
//
//	catalog.OpenLog ─► snapshot? ─► copy log ─► copy mutations ─► sink.end
//	                                  │
//	                        whole (fast, first copy) or read (a consumer, what is new)
//
// Who may change what: the goroutine of save alone, but for the file being written: flush
// hands that to a goroutine of its own, and wait takes the result. One file at most is
// being written while the next fills.
//
// Why a copy of a log that grows is right: it has the messages up to the end at the
// beginning of its copy. The log is a sequence of facts, so any prefix of it is a state
// that the database had.

// run is one run of a backup.
type run struct {
	js  jetstream.JetStream
	db  schema.DatabaseName
	old *Manifest // what there is before
	new *Manifest
	to  sink
	// Progress, if not nil, is told how many messages were written.
	progress func(messages uint64)
}

// Save copies a database to dir, or what it has after the last run to dir, by a connection of
// an operator. Until it returns, dir has what it had before. progress may be nil. It
// copies only what is new since; where the log has lost some of that, it begins again.
func Save(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName, dir string, progress func(messages uint64)) (*Manifest, error) {
	if err := checkEmpty(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := Load(dir)
	if errors.Is(err, ErrNone) {
		old = &Manifest{Format: format, Database: db}
		if err = os.Chmod(dir, 0o700); err == nil {
			err = directory(dir).end(old) // what a run leaves that is interrupted is known by it
		}
	}
	if err != nil {
		return nil, err
	}
	if old.Database != db {
		return nil, fmt.Errorf("%s has a backup of database %s: give database %s a directory of its own", dir, old.Database, db)
	}
	return (&run{js: js, db: db, old: old, to: directory(dir), progress: progress}).save(ctx)
}

// lock keeps other runs out of a directory until unlock, or until the process ends. Two
// runs at once would each remove the other's files.
func lock(dir string) (unlock func(), err error) {
	name := filepath.Join(dir, lockName)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_ = file.Close()
	held, err := vfs.Default.Lock(name)
	if err != nil {
		return nil, fmt.Errorf("another backup to %s is under way: try again when that is done (%w)", dir, err)
	}
	return func() { _ = held.Close() }, nil
}

// SaveTar writes a tar of a database, by a connection of an operator. A tar is always a
// whole copy: nothing of it is there to continue.
func SaveTar(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName, to io.Writer, progress func(messages uint64)) (*Manifest, error) {
	return (&run{js: js, db: db, old: &Manifest{}, to: tarball{tar.NewWriter(to)}, progress: progress}).save(ctx)
}

// checkEmpty returns an error if a directory has other files than those of a backup. A
// wrong directory must not fill with the files of a backup, some of which a later run
// removes.
func checkEmpty(dir string) error {
	if _, err := Load(dir); !errors.Is(err, ErrNone) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != lockName && name != manifestName+".new" {
			return fmt.Errorf("%s has other files, such as %s: give an empty directory, or one with a backup", dir, name)
		}
	}
	return nil
}

const lockName = "lock"

// save copies the snapshot before the log that needs it, and the log before the mutations:
// lapse judges again a mutation between the two, and refuses a log that has judged more than
// the mutations stream has.
func (r *run) save(ctx context.Context) (*Manifest, error) {
	r.new = &Manifest{Format: format, Database: r.db, Time: time.Now().UTC()}
	log, err := catalog.OpenLog(ctx, r.js, r.db)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("database %s has no log: see `lapse status --all` for the databases that are served", r.db)
	} else if err != nil {
		return nil, err
	}
	if err := eventlog.Interrupted(log.CachedInfo().Config); err != nil {
		return nil, err
	}
	before := r.old.Log()
	if before != nil && !slices.Contains(eventlog.Identities(log.CachedInfo().Config), eventlog.Identity(before.Config)) {
		return nil, errors.New("the backup holds another log: give a new directory, and keep this one until that is complete")
	}
	var taken *Stream
	if first := r.continues(before, log.CachedInfo()); first > 1 {
		if taken, err = r.snapshot(ctx, first, before != nil && before.First == first); err != nil {
			return nil, err
		}
	}
	copied, err := r.copy(ctx, log, before)
	if err != nil {
		return nil, err
	}
	r.new.Streams = append(r.new.Streams, copied)
	if taken != nil {
		if seq := r.db.SnapshotOf(taken.Config.Name); seq+1 < copied.First || seq > copied.Last {
			return nil, fmt.Errorf("the log from %d on was trimmed meanwhile: back up again", seq+1)
		}
		r.new.Streams = append(r.new.Streams, taken)
	}
	mutations, err := catalog.Open(ctx, r.js, r.db.MutationStream())
	if err == nil {
		copied, err = r.copy(ctx, mutations, r.old.stream(r.db.MutationStream()))
	}
	switch {
	case err == nil:
		r.new.Streams = append(r.new.Streams, copied)
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, err
	}
	return r.new, r.to.end(r.new)
}

// continues returns the first sequence that the copy of a stream will have. A stream that
// was trimmed beyond what the backup has leaves a gap, so its copy begins again.
func (r *run) continues(before *Stream, now *jetstream.StreamInfo) (first uint64) {
	if before != nil && now.State.FirstSeq <= before.Last+1 {
		return before.First
	}
	return now.State.FirstSeq
}

// snapshot copies the newest snapshot, without which a log that was trimmed cannot be folded,
// or returns the one that there is from an earlier run.
func (r *run) snapshot(ctx context.Context, first uint64, same bool) (*Stream, error) {
	for _, s := range r.old.Streams {
		if same && r.db.SnapshotOf(s.Config.Name) > 0 {
			return s, nil
		}
	}
	newest, err := snapshot.Newest(ctx, r.js, r.db)
	if err != nil {
		return nil, err
	}
	if newest == 0 {
		return nil, fmt.Errorf("the log begins at %d, and there is no sound snapshot of the events before: run `lapse snapshot create`", first)
	}
	stream, err := catalog.Open(ctx, r.js, r.db.SnapshotStream(newest))
	if err != nil {
		return nil, err
	}
	return r.copy(ctx, stream, nil)
}

// copy copies the messages of a stream after those of before, which is nil for none. The
// copy goes to the end that the stream had at its beginning. A read that fails goes on
// after the last message, as long as it gets any further.
func (r *run) copy(ctx context.Context, stream jetstream.Stream, before *Stream) (*Stream, error) {
	info := stream.CachedInfo()
	config := info.Config
	s := &Stream{Config: config, First: info.State.FirstSeq, Last: info.State.FirstSeq - min(info.State.FirstSeq, 1)}
	index := uint32(0)
	if before != nil && len(before.Files) > 0 {
		index = before.Files[len(before.Files)-1].Index
	}
	if before != nil && before.Last > info.State.LastSeq {
		return nil, fmt.Errorf("stream %s ends at %d, and the backup at %d: give a new directory, and keep this one", config.Name, info.State.LastSeq, before.Last)
	}
	if before != nil && r.continues(before, info) == before.First {
		if err := r.checkSame(ctx, before); err != nil {
			return nil, err
		}
		s.First, s.Last, s.Messages, s.Message, s.Time, s.Files = before.First, before.Last, before.Messages, before.Message, before.Time, slices.Clone(before.Files)
	}
	if config.Name == r.db.LogStream() {
		if err := s.addConsumers(ctx, stream); err != nil {
			return nil, err
		}
	}
	c := &copier{run: r, Stream: s, file: blocks.NewWriter(config.Name, index+1), index: index + 1, end: info.State.LastSeq}
	defer func() { _ = c.wait() }()
	if s.Messages == 0 && info.State.Bytes >= wholeBytes {
		if err := c.whole(ctx); err != nil {
			return nil, fmt.Errorf("stream %s: %w", config.Name, err)
		}
	}
	for s.Last < c.end {
		last := s.Last
		err := c.read(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil || s.Last == last && !errors.Is(err, errSilent) || errors.Is(err, errSink) {
			return nil, fmt.Errorf("stream %s after %d: %w", config.Name, s.Last, err)
		}
	}
	s.Last = max(s.Last, c.end) // also if the end was trimmed
	if err := c.flush(); err != nil {
		return nil, err
	}
	return s, c.wait()
}

// checkSame returns an error if the stream has another message than the last of the
// backup. One message is enough to tell a stream that was restored or made again since.
func (r *run) checkSame(ctx context.Context, before *Stream) error {
	if before.Messages == 0 {
		return nil
	}
	message, err := (logread.Stream{JS: r.js, Name: before.Config.Name}).Get(ctx, before.Message)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // trimmed
		return nil
	case err != nil:
		return fmt.Errorf("stream %s: %w", before.Config.Name, err)
	case !message.Time.Equal(before.Time):
		return fmt.Errorf("message %d of stream %s is not that of the backup: give a new directory, and keep this one", before.Message, before.Config.Name)
	}
	return nil
}

// addConsumers adds the durable consumers of the log and what they have acknowledged.
func (s *Stream) addConsumers(ctx context.Context, stream jetstream.Stream) error {
	all := stream.ListConsumers(ctx)
	for c := range all.Info() {
		if c.Config.Durable != "" {
			s.Consumers = append(s.Consumers, Consumer{c.Config, c.Created, c.AckFloor.Consumer, c.AckFloor.Stream})
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return fmt.Errorf("consumers of stream %s: %w", s.Config.Name, err)
	}
	return nil
}

// errSilent means that no message came for silence: they may have been trimmed meanwhile.
var errSilent = errors.New("no message came")

const silence = 10 * time.Second

// errSink means that the backup cannot be written.
var errSink = errors.New("the backup cannot be written")

// copier copies the messages of a stream up to end.
type copier struct {
	*run
	*Stream
	file    *blocks.Writer
	index   uint32
	end     uint64
	writing chan written // of the file before; nil if it is written
	spare   []byte       // its content
}

// read reads the messages after Last with one consumer, and returns nil at the end. The
// consumer ends by itself if this process does, after consumerTTL. A read that is tried
// again makes another one, after the last message.
func (c *copier) read(ctx context.Context) error {
	name := "lapse_backup_" + rand.Text()
	source := logread.Stream{JS: c.js, Name: c.Config.Name}
	defer func() { _ = c.js.Conn().Publish(logread.API(c.js)+"CONSUMER.DELETE."+source.Name+"."+name, nil) }()
	consumer, err := logread.Open(ctx, source, logread.Options{
		Config:   jetstream.ConsumerConfig{Name: name, OptStartSeq: c.Last + 1, InactiveThreshold: consumerTTL},
		Messages: aheadMessages, Bytes: aheadBytes, Heartbeat: logread.Heartbeat,
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	if consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	for {
		waiting, done := context.WithTimeout(ctx, silence)
		seq, m, err := consumer.Next(waiting)
		if err != nil && ctx.Err() == nil && waiting.Err() != nil {
			err = errSilent
		}
		done()
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err == nil {
			err = c.add(ctx, source, seq, meta.Timestamp, m)
		}
		if err != nil || seq >= c.end || meta.NumPending == 0 {
			return err
		}
	}
}

// add stores a message with its header byte for byte. nats.go parses headers, and writing
// them again may differ. The sizes show that, and then the raw header is read by a request
// of its own.
func (c *copier) add(ctx context.Context, source logread.Stream, seq uint64, at time.Time, m *nats.Msg) error {
	message := blocks.Message{Seq: seq, Time: at.UnixNano(), Subject: m.Subject, Header: encode(m.Header), Body: m.Data}
	if m.Size()-len(m.Subject)-len(m.Reply)-len(m.Data) != len(message.Header) { // they were written in another way
		raw, err := source.Header(ctx, seq)
		if err != nil {
			return err
		}
		message.Header = raw
	}
	return c.store(message)
}

// store adds a message to the current file, and ends a file that is full.
func (c *copier) store(m blocks.Message) error {
	if c.Messages == 0 {
		c.First = m.Seq
	}
	c.file.Add(m)
	c.Last, c.Message, c.Time = m.Seq, m.Seq, time.Unix(0, m.Time).UTC()
	c.Messages++
	if len(c.file.File) < fileBytes {
		return nil
	}
	return c.flush()
}

// flush ends the current file, if it has messages, and writes it while the next one fills.
// It waits for the file before, so at most two are in memory. Their buffers take turns.
func (c *copier) flush() error {
	if err := c.wait(); err != nil || len(c.file.File) == 0 {
		return err
	}
	index, content, done := c.index, c.file.File, make(chan written, 1)
	c.writing = done
	go func() {
		f := File{index, int64(len(content)), sum(content)}
		done <- written{f, c.to.put(c.Stream.file(f), content)}
	}()
	c.index++
	c.file = blocks.NewWriter(c.Config.Name, c.index)
	c.file.File, c.spare = c.spare[:0], content
	return nil
}

// written is a file that was written, or why it was not.
type written struct {
	File
	err error
}

// wait waits for the file that is being written.
func (c *copier) wait() error {
	if c.writing == nil {
		return nil
	}
	w := <-c.writing
	c.writing = nil
	if w.err != nil {
		return fmt.Errorf("%w: %w", errSink, w.err)
	}
	c.Files = append(c.Files, w.File)
	if c.progress != nil {
		c.progress(c.Messages)
	}
	return nil
}

// encode returns headers as nats.go sends them: it has lost their order, and spaces at both ends
// of a value.
func encode(h nats.Header) []byte {
	if len(h) == 0 {
		return nil
	}
	b := bytes.NewBufferString("NATS/1.0\r\n")
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fmt.Fprintf(b, "%s: %s\r\n", name, value)
		}
	}
	b.WriteString("\r\n")
	return b.Bytes()
}
