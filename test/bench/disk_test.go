package bench

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

const (
	retain = 2 * time.Second
	// diskRest is how long the disk must be unchanged to count as at rest: several
	// rounds of the retention.
	diskRest = 4 * retain
	// diskTimeout bounds the wait for that.
	diskTimeout = 3 * time.Minute
)

// BenchmarkDisk measures the disk space of the log, the projection and all else after
// very many documents have expired and the retention has passed, against a database that
// never had one. Most of either is the padding of the log that makes JetStream drop its
// last file, 480 KiB at most.
func BenchmarkDisk(b *testing.B) {
	documents := versus.Size(1_000_000, 50_000)
	var full, after, empty int64
	for b.Loop() {
		full, after = expired(b, documents)
		_, empty = expired(b, 0)
	}
	row := versus.Row{Work: "disk when " + millions(documents) + " documents have expired and `--retain` passed", Peer: "a database that never had any",
		Unit: " MB", Goal: versus.AtMost(1.1), Lapse: megabytes(after), Other: megabytes(empty)}
	row.Ratio = row.Lapse / row.Other
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(megabytes(full), "full-MB")
	b.ReportMetric(row.Lapse, "expired-MB")
	b.ReportMetric(row.Other, "empty-MB")
	b.ReportMetric(row.Ratio, "ratio")
	versus.Report(b, row)
}

// expired stores documents, lets all of them expire and returns the disk usage before,
// and after when the disk is at rest.
func expired(b *testing.B, documents int) (full, after int64) {
	b.Helper()
	l := startLapse(b, processor.OS, "--retain", retain.String())
	orders := l.create(b, "orders", client.DefaultTTL(day))
	fill(b, l, "orders", documents)
	full = onDisk(b, l.Dir)
	if _, err := l.client.ReplaceCollection(b.Context(), orders.Name(), client.DefaultTTL(time.Second)); err != nil {
		b.Fatal(err)
	}
	rested, deadline := time.Now(), time.Now().Add(diskTimeout)
	for time.Since(rested) < diskRest {
		if time.Now().After(deadline) {
			b.Fatalf("the disk came to no rest within %s of the expiry", diskTimeout)
		}
		time.Sleep(time.Second / 4)
		status, err := l.client.Status(b.Context())
		check(b, err)
		if now := onDisk(b, l.Dir); now != after || status.Documents+status.Overdue > 0 {
			after, rested = now, time.Now()
		}
	}
	l.holds(b, 0)
	l.Stop()
	return full, after
}

// onDisk returns the disk usage of a directory, as du counts it.
func onDisk(b *testing.B, dir string) (bytes int64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	})
	check(b, err)
	return bytes
}
