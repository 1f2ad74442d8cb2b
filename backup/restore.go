package backup

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/catalog"
	"github.com/lapsedb/lapse/logread"
	"github.com/lapsedb/lapse/processor/embedded/blocks"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
)

const (
	chunkBytes   = 128 << 10       // of a message to NATS
	chunkTimeout = 2 * time.Minute // NATS reads back a stream before it answers the last one
)

// Options of Restore.
type Options struct {
	Replace  bool // also a database that has other or newer events
	Replicas int  // of the streams; 0 for as many as they had
	// Begin, if not nil, is called before anything changes.
	Begin func() error
	// Progress, if not nil, is told how many bytes of messages were sent.
	Progress func(bytes int64)
}

// Restore restores the database that m says, as Verify has returned it, from dir, by a
// connection of an operator; nobody may serve the database. Sequences, times and messages are
// those of the backup. The log is another one: projections are folded again from it where
// they do not match. lapse refuses it until all is there, and so does Save. Its order:
//
//  1. check: nobody serves the database, and it has nothing that the backup lacks
//  2. mark the mutations, remove all other streams but the lease
//  3. send the log, marked as not complete
//  4. send snapshot and mutations
//  5. unmark the log
//
// lapse refuses a database with a mark, so a restore that dies leaves nothing that could
// be served; it is run again from the beginning.
func Restore(ctx context.Context, js jetstream.JetStream, dir string, m *Manifest, o Options) error {
	if err := catalog.CheckVacant(ctx, js, m.Database); err != nil {
		return err
	}
	if err := checkOlder(ctx, js, m, o.Replace); err != nil {
		return err
	}
	if o.Begin != nil {
		if err := o.Begin(); err != nil {
			return err
		}
	}
	mutations := m.stream(m.Database.MutationStream())
	if err := clear(ctx, js, m.Database, mutations, o.Replicas); err != nil {
		return err
	}
	var log jetstream.StreamConfig
	for i, s := range m.Streams {
		config := s.Config
		config.Replicas = cmp.Or(o.Replicas, config.Replicas)
		if i == 0 {
			config = eventlog.Restored(config, m.Database)
			log = config
		}
		if s == mutations {
			if err := catalog.Remove(ctx, js, []string{config.Name}); err != nil {
				return err
			}
		}
		if err := restoreStream(ctx, js, dir, s, config, o.Progress); err != nil {
			return fmt.Errorf("restore stream %s: %w", config.Name, err)
		}
	}
	_, err := js.UpdateStream(ctx, eventlog.Complete(log))
	return err
}

// clear removes the streams of a database, the log last. Those of the mutations remain until
// they are restored: lapse, which would begin a new database without a log, refuses them. A
// new lease would cost a take-over.
func clear(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName, mutations *Stream, replicas int) error {
	streams, err := catalog.Streams(ctx, js, db)
	if err == nil && mutations != nil {
		err = unrestored(ctx, js, mutations.Config, replicas)
	}
	if err != nil {
		return err
	}
	return catalog.Remove(ctx, js, slices.DeleteFunc(streams, func(name string) bool {
		return name == db.LeaseStream() || mutations != nil && name == mutations.Config.Name
	}))
}

// unrestored marks a stream, which it creates if there is none, so that lapse refuses it.
func unrestored(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, replicas int) error {
	stream, err := catalog.Open(ctx, js, config.Name)
	if err == nil {
		_, err = js.UpdateStream(ctx, eventlog.Unrestored(stream.CachedInfo().Config))
	} else if errors.Is(err, jetstream.ErrStreamNotFound) {
		config.Replicas = cmp.Or(replicas, config.Replicas)
		_, err = js.CreateStream(ctx, eventlog.Unrestored(config))
	}
	return err
}

var errNewer = errors.New("give --replace to lose them")

// checkOlder returns an error if the database has events that the backup does not have, unless
// replace. The logs are the same if their identities are: then the sequence tells which is
// newer.
func checkOlder(ctx context.Context, js jetstream.JetStream, m *Manifest, replace bool) error {
	log, err := catalog.Open(ctx, js, m.Database.LogStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	now, backup := log.CachedInfo(), m.Log()
	switch same := eventlog.Identity(now.Config) == eventlog.Identity(backup.Config); {
	case replace || eventlog.Interrupted(now.Config) != nil || now.State.LastSeq == 0 || same && now.State.LastSeq <= backup.Last:
		return nil
	case same:
		return fmt.Errorf("database %s has events up to %d, and the backup up to %d: %w", m.Database, now.State.LastSeq, backup.Last, errNewer)
	}
	return fmt.Errorf("database %s has %d events of another log than that of the backup: %w", m.Database, now.State.Msgs, errNewer)
}

// restoreStream sends a stream to NATS, which creates it when it has all of it. NATS
// answers each chunk, which is how it limits the pace. Only when it has all does it create
// the stream, so a client never sees half of one.
func restoreStream(ctx context.Context, js jetstream.JetStream, dir string, s *Stream, config jetstream.StreamConfig, progress func(int64)) error {
	request, err := json.Marshal(map[string]any{"config": config, "state": map[string]any{}})
	if err != nil {
		return err
	}
	answer, err := ask(ctx, js, logread.API(js)+"STREAM.RESTORE."+config.Name, request)
	if err != nil {
		return err
	}
	reading, sending := io.Pipe()
	defer reading.Close()
	go func() { sending.CloseWithError(s.pack(dir, config, sending, progress)) }()
	for chunk := make([]byte, chunkBytes); ; {
		n, err := io.ReadFull(reading, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if _, err := ask(ctx, js, answer.Deliver, chunk[:n]); err != nil || n == 0 {
			return err
		}
	}
}

// answer is that of NATS to a request, and to messages with content unless it is empty.
type answer struct {
	Deliver string              `json:"deliver_subject"`
	Error   *jetstream.APIError `json:"error"`
}

// ask sends a request to NATS and returns its answer, or the error in it.
func ask(ctx context.Context, js jetstream.JetStream, subject string, body []byte) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	m, err := js.Conn().RequestWithContext(ctx, subject, body)
	if err != nil {
		return a, err
	}
	if len(m.Data) > 0 {
		err = json.Unmarshal(m.Data, &a)
	}
	if err == nil && a.Error != nil {
		err = a.Error
	}
	return a, err
}

// pack writes a stream as NATS takes it back: its directory, as a compressed tar. The form
// is that of NATS's own snapshots before 2.15:
//
//	meta.inf, meta.sum           the configuration, and a hash of it keyed by the name
//	msgs/1.blk, msgs/2.blk, …    the files of the backup, as they are
//	obs/<durable>/meta.inf, meta.sum, o.dat   consumers
//
// Sequences at the end that were trimmed have no message; Skip writes a mark for them, so
// that the next message has the sequence after.
func (s *Stream) pack(dir string, config jetstream.StreamConfig, to io.Writer, progress func(int64)) error {
	compressed := s2.NewWriter(to)
	t := tarball{tar.NewWriter(compressed)}
	meta, err := json.Marshal(config)
	if err = cmp.Or(err, t.put("meta.inf", meta), t.put("meta.sum", blocks.MetaSum(config.Name, meta))); err != nil {
		return err
	}
	next := uint32(1)
	for _, f := range s.Files {
		content, err := os.ReadFile(filepath.Join(dir, s.file(f)))
		if err == nil && sum(content) != f.SHA256 {
			err = fmt.Errorf("%s has changed", s.file(f))
		}
		if err = cmp.Or(err, t.put("msgs/"+blocks.FileName(f.Index), content)); err != nil {
			return err
		}
		next = f.Index + 1
		if progress != nil {
			progress(f.Bytes)
		}
	}
	if s.Last > s.Message {
		end := blocks.NewWriter(config.Name, next)
		end.Skip(s.Last)
		if err := t.put("msgs/"+blocks.FileName(next), end.File); err != nil {
			return err
		}
	}
	for _, c := range s.Consumers {
		if err := c.pack(t, config.Name); err != nil {
			return err
		}
	}
	return cmp.Or(t.Close(), compressed.Close())
}

// pack writes a consumer that has nothing delivered but what it has acknowledged. The
// numbers of the state are acknowledged and delivered, each of the consumer and of the
// stream, and no pending and no redelivered message.
func (c *Consumer) pack(t tarball, stream string) error {
	meta, err := json.Marshal(struct {
		Created time.Time
		Name    string
		jetstream.ConsumerConfig
	}{c.Created, c.Config.Durable, c.Config})
	state := []byte{22, 2} // magic and version
	for _, n := range []uint64{c.Consumer, c.Stream, c.Consumer, c.Stream, 0, 0} {
		state = binary.AppendUvarint(state, n)
	}
	dir := "obs/" + c.Config.Durable + "/"
	return cmp.Or(err, t.put(dir+"meta.inf", meta), t.put(dir+"meta.sum", blocks.MetaSum(stream+"/"+c.Config.Durable, meta)), t.put(dir+"o.dat", state))
}
