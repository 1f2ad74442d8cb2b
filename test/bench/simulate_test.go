package bench

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/versus"
)

// A simulation begins at start, with a collection of sessions of half an hour.
var (
	start          = time.Date(2015, 5, 17, 0, 0, 0, 0, time.UTC)
	createSessions = `{"at":"2015-05-17T00:00:00Z","op":"collection.create","collection":"sessions","body":{"defaultTtl":1800}}` + "\n"
)

// BenchmarkSimulate runs the command `lapse simulate`, from its start to its
// end, reading a file, and prints into nothing.
func BenchmarkSimulate(b *testing.B) {
	lapse := filepath.Join(b.TempDir(), "lapse")
	build := exec.Command("go", "build", "-o", lapse, "./cmd/lapse")
	build.Dir = "../.." // in its own module, with the versions that it has there
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	b.Run("sessions", func(b *testing.B) {
		const mutations, sessions = 1_000_000, 100_000
		simulate(b, lapse, 1, mutations, func(w io.Writer) error { return writeSessions(w, mutations, sessions) })
	})
	b.Run("hits", func(b *testing.B) {
		file, err := os.Open("../testdata/hits.ndjson.gz")
		if err != nil {
			b.Fatal(err)
		}
		defer file.Close()
		lines, err := gzip.NewReader(file)
		if err != nil {
			b.Fatal(err)
		}
		hits, err := io.ReadAll(lines)
		if err != nil {
			b.Fatal(err)
		}
		simulate(b, lapse, versus.Rounds, bytes.Count(hits, []byte("\n")), func(w io.Writer) error {
			_, err := w.Write(hits)
			return err
		})
	})
}

// writeSessions writes one mutation every 20 ms, of a session drawn at random:
// so each is renewed every 33 minutes on average, and often expires before.
func writeSessions(w io.Writer, mutations, sessions int) error {
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range mutations {
		at := start.Add(time.Duration(n) * 20 * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
		session := rnd.IntN(sessions)
		if _, err := fmt.Fprintf(w, `{"at":%q,"op":"document.upsert","collection":"sessions","id":%q,"body":%s}`+"\n",
			at, versus.ID(session), versus.Document(session)); err != nil {
			return err
		}
	}
	return nil
}

// simulate reports the median of so many runs over an input, by the clock and
// by the processor time used.
func simulate(b *testing.B, lapse string, rounds, mutations int, input func(io.Writer) error) {
	name := filepath.Join(b.TempDir(), "mutations.ndjson")
	if err := writeFile(name, input); err != nil {
		b.Fatal(err)
	}
	var rates, cpuRates []float64
	for b.Loop() {
		for range rounds {
			began := time.Now()
			var said bytes.Buffer
			cmd := exec.Command(lapse, "simulate", name)
			cmd.Stderr = &said
			if err := cmd.Run(); err != nil {
				b.Fatalf("%v\n%s", err, &said)
			}
			rates = append(rates, float64(mutations)/time.Since(began).Seconds())
			used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			cpuRates = append(cpuRates, float64(mutations)/used.Seconds())
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(versus.Median(rates), "mutations/s")
	b.ReportMetric(versus.Median(cpuRates), "mutations/cpu-s")
}

func writeFile(name string, write func(io.Writer) error) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
	}()
	w := bufio.NewWriterSize(file, 1<<20)
	if _, err := w.WriteString(createSessions); err != nil {
		return err
	}
	if err := write(w); err != nil {
		return err
	}
	return w.Flush()
}
