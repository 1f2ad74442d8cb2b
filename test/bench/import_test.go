package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// imported is the number of lines of an imported file.
var imported = versus.Size(200_000, 50_000)

// BenchmarkImport stores the documents of a file by `lapse import`, against callers who send
// batches that are ready to send. Its processor time is that of the server alone.
func BenchmarkImport(b *testing.B) {
	for _, durability := range []processor.Durability{processor.OS, processor.Fsync} {
		b.Run(string(durability), func(b *testing.B) {
			const callers = 64
			l := startLapse(b, durability)
			l.create(b, "orders", client.DefaultTTL(time.Hour))
			var lines bytes.Buffer
			for n := range imported {
				lines.Write(append(versus.Document(versus.Spread(n, upserted)), '\n'))
			}
			file := filepath.Join(b.TempDir(), "orders.jsonl")
			check(b, os.WriteFile(file, lines.Bytes(), 0o600))
			load := func() versus.Rate {
				clock := versus.Start(l.PID())
				l.Run("import", "orders", file).OK()
				return clock.Stop(imported)
			}
			versus.Run(b, fmt.Sprintf("`lapse import` of a file, documents, `%s`", durability), load,
				versus.Peer{Name: fmt.Sprintf("lapse, `batch` of %d upserts, %d callers", upsertBatch, callers), Goal: versus.AtLeast(0.8),
					Round: l.batches(b, versus.Connections(b, l.URL(), connections), callers)})
		})
	}
}
