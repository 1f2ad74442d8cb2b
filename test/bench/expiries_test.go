package bench

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// version is a stored version of a document: the sequence of its event, and the second
// from which it no longer exists.
type version struct {
	seq uint64
	due int64
}

// expiry is a DocumentExpired as a client reads it from the log.
type expiry struct {
	due     time.Time
	logTime time.Time
	stored  time.Time // by NATS
}

// late returns the time from the deadline until NATS stored the event.
func (e expiry) late() time.Duration { return e.stored.Sub(e.due) }

// expiries reads all DocumentExpired of a collection from the log. It fails unless there
// is exactly one for each version, none of them before its deadline. versions are those
// of document first and the following ones.
func expiries(b *testing.B, l *lapse, collection string, first int, versions []version) []expiry {
	b.Helper()
	subject := "lapse.main.events." + collection + ".DocumentExpired"
	all := make([]expiry, 0, len(versions))
	seen := make([]bool, len(versions))
	readAll(b, l.URL(), "LAPSE_main", subject, func(m jetstream.Msg, stored time.Time) error {
		header := m.Headers()
		id := header.Get(schema.HeaderID)
		n, err := documentNumber(id)
		if n -= first; err != nil || n < 0 || n >= len(versions) {
			return fmt.Errorf("%q expired: %v", id, err)
		}
		v := versions[n]
		logTime, err := strconv.ParseInt(header.Get(schema.HeaderTime), 10, 64)
		e := expiry{time.Unix(v.due, 0), time.UnixMilli(logTime), stored}
		switch {
		case err != nil:
			return err
		case seen[n]:
			return fmt.Errorf("%s expired twice", id)
		case header.Get(schema.HeaderPrevious) != strconv.FormatUint(v.seq, 10):
			return fmt.Errorf("%s expired as version %s, stored was %d", id, header.Get(schema.HeaderPrevious), v.seq)
		case header.Get(schema.HeaderDeadline) != strconv.FormatInt(v.due, 10):
			return fmt.Errorf("%s has the deadline %s, not %d", id, header.Get(schema.HeaderDeadline), v.due)
		case e.logTime.Before(e.due) || e.stored.Before(e.due):
			return fmt.Errorf("%s expired early: %+v", id, e)
		}
		seen[n] = true
		all = append(all, e)
		return nil
	})
	if len(all) != len(versions) {
		b.Fatalf("%d of %d documents expired", len(all), len(versions))
	}
	return all
}

// documentNumber returns the number of a document with an id that needs no escapes.
func documentNumber(id string) (int, error) {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if err == nil && versus.ID(n) != id {
		err = fmt.Errorf("no id: %q", id)
	}
	return n, err
}

// readAll reads the present messages of a stream. do gets each with the time at which it
// was stored.
func readAll(b *testing.B, url, stream, subject string, do func(m jetstream.Msg, stored time.Time) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*timeout)
	defer cancel()
	nc := versus.Connect(b, url)
	defer nc.Close()
	ordered, err := harness.JetStream(b, nc).OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	check(b, err)
	if info, err := ordered.Info(ctx); err != nil {
		b.Fatal(err)
	} else if info.NumPending == 0 && info.Delivered.Stream == 0 {
		return
	}
	messages, err := ordered.Messages()
	check(b, err)
	defer messages.Stop()
	for pending := uint64(1); pending > 0; {
		m, err := messages.Next(jetstream.NextContext(ctx))
		check(b, err)
		meta, err := m.Metadata()
		if err == nil {
			err = do(m, meta.Timestamp)
		}
		check(b, err)
		pending = meta.NumPending
	}
}

// storeDue upserts documents that are all due at one second, and returns their
// versions. ok is false if the time did not suffice.
func storeDue(b *testing.B, l *lapse, collection string, documents int, due int64) (versions []version, ok bool) {
	b.Helper()
	versions = make([]version, documents)
	var late atomic.Bool
	inBatches(b, l.URL(), 0, documents, func(nc *nats.Conn, from, to int) error {
		for {
			ttl := time.Duration(due-time.Now().Unix()) * time.Second
			if ttl < time.Second {
				late.Store(true)
				return nil
			}
			if err := storeBatch(nc, collection, from, versions[from:to], func(int) time.Duration { return ttl }); err != nil {
				return err
			}
			if !slices.ContainsFunc(versions[from:to], func(v version) bool { return v.due != due }) {
				return nil
			} // else a second passed on the way
		}
	})
	return versions, !late.Load()
}

// inBatches calls do for parts of the range from..to, by several callers at once.
func inBatches(b *testing.B, url string, from, to int, do func(nc *nats.Conn, from, to int) error) {
	b.Helper()
	conns := versus.Connections(b, url, connections)
	var (
		working sync.WaitGroup
		failed  atomic.Pointer[error]
		next    atomic.Int64
	)
	next.Store(int64(from))
	for caller := range 2 * connections {
		working.Go(func() {
			for failed.Load() == nil {
				first := int(next.Add(client.MaxBatch)) - client.MaxBatch
				if first >= to {
					return
				}
				if err := do(conns[caller%connections], first, min(first+client.MaxBatch, to)); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	working.Wait()
	for _, nc := range conns {
		nc.Close()
	}
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
}

// storeBatch upserts one document for each version, from document first on, by one
// request. Each has a ttl of its own unless that is 0.
func storeBatch(nc *nats.Conn, collection string, first int, versions []version, ttl func(n int) time.Duration) error {
	var body batchBody
	for i := range versions {
		members := ""
		if own := ttl(first + i); own != 0 {
			members = fmt.Sprintf(`"ttl":%d,`, seconds(own))
		}
		body.document(first+i, members)
	}
	reply, err := request(nc, "lapse.main.api.batch."+collection, body.end(), read)
	if err != nil {
		return err
	}
	rest := reply.Data
	number := func(before string) (n int64) {
		if i := bytes.Index(rest, []byte(before)); i >= 0 {
			for rest = rest[i+len(before):]; len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9'; rest = rest[1:] {
				n = n*10 + int64(rest[0]-'0')
			}
		}
		return n
	}
	if stored := documents(reply.Data); stored != len(versions) {
		return fmt.Errorf("%d of %d documents were stored: %.200s", stored, len(versions), reply.Data)
	}
	for i := range versions {
		second := number(`"_ts":`)
		versions[i] = version{uint64(number(`"_etag":"`)), second + seconds(ttl(first+i))}
	}
	return nil
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// unexpired returns the number of documents with a deadline and no DocumentExpired.
func unexpired(l *lapse) (int64, error) {
	status, err := l.client.Status(context.Background())
	return status.PendingExpiry + status.Overdue, err
}
