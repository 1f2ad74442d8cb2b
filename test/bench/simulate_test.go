package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// A simulation begins at start, with a collection of sessions with a TTL of half an hour.
var (
	start          = time.Date(2015, 5, 17, 0, 0, 0, 0, time.UTC)
	createSessions = `{"at":"2015-05-17T00:00:00Z","op":"collection.create","collection":"sessions","body":{"defaultTtl":1800}}` + "\n"
)

// BenchmarkSimulate runs the command `lapse simulate` on a file, from its start to its
// end, and discards the output.
func BenchmarkSimulate(b *testing.B) {
	checkSessions(b)
	mutations := versus.Size(10_000_000, 200_000)
	rate := simulate(b, mutations, func(w io.Writer) error { return writeSessions(w, mutations) })
	versus.Report(b, versus.Row{Work: "`simulate`, 24 h of sessions at 2,000 upserts/s, extrapolated from " + millions(mutations),
		Unit: " mutations/s", Lapse: rate, Goal: versus.AtLeast(200_000)})
}

// writeSessions writes mutations for 83 minutes, 2,000 a second if there are 10,000,000,
// each for a session drawn at random. So each session is renewed every 33 minutes on
// average, and often expires before.
func writeSessions(w io.Writer, mutations int) error {
	const took = 10_000_000 * time.Second / 2_000
	every, sessions := took/time.Duration(mutations), mutations*2/5
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range mutations {
		at := start.Add(time.Duration(n) * every).Format("2006-01-02T15:04:05.000Z")
		session := rnd.IntN(sessions)
		if _, err := fmt.Fprintf(w, `{"at":%q,"op":"document.upsert","collection":"sessions","id":%q,"body":%s}`+"\n",
			at, versus.ID(session), versus.Document(session)); err != nil {
			return err
		}
	}
	return nil
}

// simulate runs an input, reports the rates by wall clock and by processor time, and returns
// the former.
func simulate(b *testing.B, mutations int, input func(io.Writer) error) (rate float64) {
	name := writeFile(b, input)
	for b.Loop() {
		began := time.Now()
		var stderr bytes.Buffer
		cmd := harness.Command(b, "simulate", name)
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			b.Fatalf("%v\n%s", err, &stderr)
		}
		rate = float64(mutations) / time.Since(began).Seconds()
		used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		b.ReportMetric(float64(mutations)/used.Seconds(), "mutations/cpu-s")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate, "mutations/s")
	return rate
}

// checkSessions fails the benchmark unless a short input has one event for each mutation,
// and as many expiries as creations.
func checkSessions(b *testing.B) {
	b.Helper()
	const mutations = 50_000
	log, err := harness.Command(b, "simulate", writeFile(b, func(w io.Writer) error { return writeSessions(w, mutations) })).Output()
	check(b, err)
	count := func(event string) int { return bytes.Count(log, []byte(`"type":"`+event+`"`)) }
	created, replaced, expired := count("DocumentCreated"), count("DocumentReplaced"), count("DocumentExpired")
	if created+replaced != mutations || expired != created || bytes.Count(log, []byte("\n")) != 1+mutations+expired {
		b.Fatalf("%d mutations created %d sessions and replaced %d, %d expired", mutations, created, replaced, expired)
	}
}

// writeFile writes a file with the collection of sessions and mutations, and returns its
// name.
func writeFile(b *testing.B, mutations func(io.Writer) error) string {
	b.Helper()
	file, err := os.Create(filepath.Join(b.TempDir(), "mutations.ndjson"))
	check(b, err)
	w := bufio.NewWriterSize(file, 1<<20)
	_, err = w.WriteString(createSessions)
	if err == nil {
		err = mutations(w)
	}
	check(b, errors.Join(err, w.Flush(), file.Close()))
	return file.Name()
}
