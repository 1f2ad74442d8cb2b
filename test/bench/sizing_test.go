package bench

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/versus"
)

// documentSizes are sizes in bytes of JSON as sent.
var documentSizes = []int{200, 500, 1000, 4000}

// kept is a collection whose documents are measured.
type kept struct {
	name    string
	members string // of each document, besides the filler
	opts    []client.PropertyOption

	durability processor.Durability
}

// BenchmarkSizing measures the disk space of a document: in the log when it is created
// and when it expires, and in the projection while it lives. Files are counted as du
// does, after a stop, which flushes the projection. Each figure is the difference to a
// database that has the collection and no document. lapse starts again for each.
func BenchmarkSizing(b *testing.B) {
	documents := versus.Size(100_000, 20_000)
	day := client.DefaultTTL(day)
	plain := []client.PropertyOption{day}
	for _, k := range []kept{
		{"default-ttl", "", plain, processor.OS},
		{"default-ttl-fsync", "", plain, processor.Fsync},
		{"own-ttl", `"ttl":86400,`, plain, processor.OS},
		{"included-path", "", []client.PropertyOption{day, client.IncludePaths("/customer")}, processor.OS},
	} {
		for _, size := range documentSizes {
			b.Run(fmt.Sprintf("%s/bytes=%d", k.name, size), func(b *testing.B) {
				for b.Loop() {
					costs(b, k, size, documents)
				}
			})
		}
	}
	for _, images := range []bool{true, false} {
		for _, size := range documentSizes {
			b.Run(fmt.Sprintf("expiry/previousImages=%t/bytes=%d", images, size), func(b *testing.B) {
				for b.Loop() {
					expiryCosts(b, size, documents/4, images)
				}
			})
		}
	}
}

// sizedDocument returns a document of size bytes, most of it text that differs between
// any two documents.
func sizedDocument(n, size int, members string) []byte {
	text := fmt.Appendf(nil, `{"id":%q,%s"customer":"C%05d","note":""}`, versus.ID(n), members, n%10_000)
	const letters = "abcdefghijklmnopqrstuvwxyz012345"
	filler := make([]byte, max(size-len(text), 0))
	for i, x := 0, uint64(n)*2654435761+1; i < len(filler); i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		filler[i] = letters[x%32]
	}
	return append(append(text[:len(text)-2], filler...), `"}`...)
}

// costs stores documents and reports the bytes for each.
func costs(b *testing.B, k kept, size, documents int) {
	b.Helper()
	empty, _ := storeSized(b, k, size, 0)
	full, messages := storeSized(b, k, size, documents)
	per := func(of func(taken) int64) float64 { return float64(of(full)-of(empty)) / float64(documents) }
	report(b, per(func(t taken) int64 { return t.log }), messages, per(func(t taken) int64 { return t.projection }))
}

// taken is disk space in bytes.
type taken struct{ log, projection int64 }

func onDisks(b *testing.B, l *lapse) taken {
	return taken{onDisk(b, filepath.Join(l.Dir, "jetstream")), onDisk(b, filepath.Join(l.Dir, "projection"))}
}

// storeSized stores documents and returns the disk usage after a stop of lapse, and the
// message size of one.
func storeSized(b *testing.B, k kept, size, documents int) (taken, float64) {
	b.Helper()
	l := startLapse(b, k.durability)
	c := l.create(b, "sessions", k.opts...)
	load(b, c, 0, documents, func(n int) []byte { return sizedDocument(n, size, k.members) })
	l.holds(b, documents)
	message := 0.0
	if documents > 0 {
		message = l.eventSize(b, "DocumentCreated")
	}
	l.Stop()
	return onDisks(b, l), message
}

// eventSize returns the size of an event of a type as NATS sends it: subject, headers and
// body, without what JetStream adds in its file.
func (l *lapse) eventSize(b *testing.B, kind string) float64 {
	b.Helper()
	m, err := l.logStream(b).GetLastMsgForSubject(b.Context(), schema.DatabaseName("main").Events()+"sessions."+kind)
	check(b, err)
	return float64((&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}).Size())
}

// expiryCosts reports the bytes that the expiry of a document adds to the log.
func expiryCosts(b *testing.B, size, documents int, images bool) {
	b.Helper()
	l := startLapse(b, processor.OS)
	opts := []client.PropertyOption{client.DefaultTTL(day)}
	if !images {
		opts = append(opts, client.PreviousImages(false))
	}
	c := l.create(b, "sessions", opts...)
	load(b, c, 0, documents, func(n int) []byte { return sizedDocument(n, size, "") })
	l.Stop()
	before := onDisks(b, l)
	l.Restart()
	opts[0] = client.DefaultTTL(time.Second)
	if _, err := l.client.ReplaceCollection(b.Context(), "sessions", opts...); err != nil {
		b.Fatal(err)
	}
	for end := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		status, err := l.client.Status(b.Context())
		if err == nil && status.PendingExpiry+status.Overdue == 0 {
			break
		}
		if time.Now().After(end) {
			b.Fatalf("not all has expired: %+v, %v", status, err)
		}
	}
	message := l.eventSize(b, "DocumentExpired")
	l.Stop()
	after := onDisks(b, l)
	per := func(bytes int64) float64 { return float64(bytes) / float64(documents) }
	report(b, per(after.log-before.log), message, per(after.projection-before.projection))
}

// report reports the disk bytes for each document, and the size of its message.
func report(b *testing.B, log, message, projection float64) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(log, "log-B")
	b.ReportMetric(message, "message-B")
	b.ReportMetric(projection, "projection-B")
}
