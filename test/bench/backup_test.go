package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jsm.go"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/backup"
	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// backedUp is the number of events of a backup.
var backedUp = versus.Size(500_000, 100_000)

// BenchmarkBackup copies a log into an empty directory, against the library of `nats stream
// backup` with the same server and stream.
func BenchmarkBackup(b *testing.B) {
	key := filepath.Join(b.TempDir(), "operator.nk")
	l := startLapse(b, processor.OS, "--operator-nkey-out", key)
	load(b, l.create(b, "orders", client.DefaultTTL(time.Hour)), 0, backedUp, versus.Document)
	login, err := nats.NkeyOptionFromSeed(key)
	check(b, err)
	nc := versus.Connect(b, l.URL(), login, nats.CustomInboxPrefix("_OPERATOR"))
	manager, err := jsm.New(nc)
	check(b, err)
	log, err := manager.LoadStream("LAPSE_main")
	check(b, err)
	js := harness.JetStream(b, nc)
	round := func(copy func(dir string) error) versus.Side {
		return func() versus.Rate {
			dir := b.TempDir()
			clock := versus.Start(l.PID())
			check(b, copy(dir))
			rate := clock.Stop(backedUp)
			check(b, os.RemoveAll(dir))
			return rate
		}
	}
	versus.Run(b, "`lapse backup` of a log, events", round(func(dir string) error {
		_, err := backup.Save(b.Context(), js, "main", dir, nil)
		return err
	}), versus.Peer{Name: "`nats stream backup`", Goal: versus.AtLeast(0.7), Round: round(func(dir string) error {
		_, err := log.SnapshotToDirectory(b.Context(), dir, jsm.SnapshotConsumers())
		return err
	})})
}
