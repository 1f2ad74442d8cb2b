package test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// TestFrozenStandby: the events that a frozen standby would fold next may be trimmed when
// it continues. It then begins with a snapshot, without a restart of the process, and
// takes over if the writer is dead by then.
func TestFrozenStandby(t *testing.T) {
	t.Parallel()
	url := startNATS(t, nil)
	serve := func() *harness.Server {
		return harness.ServeRemote(t, url, t.TempDir(), nil, "--lease", "6s", "--retain", "1s", "--snapshot-every", "1s")
	}
	writer, standby := serve(), serve() // the first one is the writer
	nc := dialURL(t, url)
	mustAsk(t, nc, 201, "collection.create.c", `{}`)
	log, err := admin(t, url).Stream(t.Context(), "LAPSE_main")
	check(t, err)
	for n, end := range []func(*harness.Server){func(*harness.Server) {}, (*harness.Server).Kill} {
		standby.Freeze()
		for name := range log.ConsumerNames(t.Context()).Name() { // to which NATS would send events that are then trimmed
			if err := log.DeleteConsumer(t.Context(), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				t.Fatal(err)
			}
		}
		info, err := log.Info(t.Context())
		check(t, err)
		next := info.State.LastSeq + 1 // at most
		eventually(t, "the log is trimmed", func() bool {
			_, _ = tryAskFor(nc, fmt.Sprint("document.upsert.c.", n), `{}`, time.Second) // the frozen standby may get it
			info, err = log.Info(t.Context())
			return err == nil && info.State.FirstSeq > next
		})
		end(writer)
		standby.Signal(syscall.SIGCONT)
		eventually(t, "it begins with a snapshot", func() bool {
			return strings.Count(standby.Stderr(), "restored from a snapshot") > n
		})
		eventually(t, "it answers", func() bool {
			return standby.Run("document", "get", "c", fmt.Sprint(n)).Code == 0
		})
	}
	eventually(t, "it writes", func() bool {
		a, err := tryAskFor(nc, "document.upsert.c.last", `{}`, time.Second)
		return err == nil && a.code < 300
	})
}
