package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
	"github.com/lapsedb/lapse/test/versus"
)

// TestImportWithin: in a control group of each size that docs/deploy.md names, lapse imports as
// many documents as it says, keeps its limit, gives memory back, and starts again.
func TestImportWithin(t *testing.T) {
	if !stress.Long() {
		t.Skip("it takes minutes: see make stress")
	}
	const mib, million = 1 << 20, 1_000_000
	for _, within := range []struct {
		bytes, keeps int64
		documents    int
	}{
		{256 * mib, 192 * mib, million},
		{512 * mib, 384 * mib, 5 * million},
		{1024 * mib, 768 * mib, 5 * million},
		{8192 * mib, 800 * mib, 5 * million},
	} {
		t.Run(fmt.Sprintf("%d MiB", within.bytes/mib), func(t *testing.T) {
			s := harness.ServeWithin(t, within.bytes, "--durability", "os")
			if status := statusOf(t, s); status.Memory.LimitBytes != within.keeps {
				t.Fatalf("lapse takes %d MiB, want %d", status.Memory.LimitBytes/mib, within.keeps/mib)
			}
			s.Run("collection", "create", "orders", `{"defaultTtl":86400}`).OK()
			began := time.Now()
			importOrders(t, s, within.documents)
			took, loaded := time.Since(began), s.Memory()
			if status := statusOf(t, s); status.Documents != int64(within.documents) {
				t.Errorf("%d documents of %d are there", status.Documents, within.documents)
			}
			// The pages of the program's file are no part of what lapse keeps.
			const program = 64 * mib
			if loaded.Most > within.keeps+program {
				t.Errorf("an import of %d documents took %s, want %d MiB", within.documents, loaded, within.keeps/mib)
			}
			rest := s.Memory()
			for end := time.Now().Add(2 * time.Minute); rest.Now > loaded.Most*3/4; rest = s.Memory() {
				if time.Now().After(end) {
					t.Fatalf("two minutes after the import lapse has %s", rest)
				}
				time.Sleep(time.Second)
			}
			s.Kill()
			s.Restart()
			s.Run("document", "get", "orders", versus.ID(within.documents/2)).OK()
			t.Logf("%d documents in %s (%.0f/s): %s; later %s; after a start %s", within.documents, took.Round(time.Second),
				float64(within.documents)/took.Seconds(), loaded, rest, s.Memory())
		})
	}
}

func statusOf(t *testing.T, s *harness.Server) (status client.Status) {
	t.Helper()
	check(t, json.Unmarshal([]byte(s.Run("status").OK()), &status))
	return status
}

// importOrders imports the first documents, from a process outside of the server's group.
func importOrders(t *testing.T, s *harness.Server, documents int) {
	t.Helper()
	lines, to := io.Pipe()
	defer lines.Close() // ends the writer if the import fails
	go func() {
		w := bufio.NewWriterSize(to, 1<<20)
		for n := range documents {
			_, _ = w.Write(versus.Document(versus.Spread(n, documents)))
			_ = w.WriteByte('\n')
		}
		_ = to.CloseWithError(w.Flush())
	}()
	cmd := harness.Command(t, "import", "orders", "-", "--server", s.URL())
	cmd.Stdin = lines
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
}
