package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// TestFrozenWriter: a frozen writer stays connected and subscribed, and NATS does not
// notice for minutes. From the take-over on its successor alone answers all mutations;
// soon all reads are answered too, since the successor makes NATS disconnect the frozen
// writer. When that continues, it answers no request that was sent meanwhile.
func TestFrozenWriter(t *testing.T) {
	t.Parallel()
	options := harness.NATSOptions(t.TempDir())
	options.WriteDeadline = time.Second
	ns := harness.StartNATS(t, options)
	var all []*harness.Server
	for range 2 {
		// Long enough for a busy machine: a writer unsure of its lease does not reply.
		all = append(all, harness.ServeRemote(t, ns.ClientURL(), t.TempDir(), io.Discard, "--lease", "6s"))
	}
	nc := dialURL(t, ns.ClientURL())
	mustAsk(t, nc, 201, "collection.create.c", `{}`)
	mustAsk(t, nc, 201, "document.create.c.a", `{}`)
	// The successor must know the writer before it is frozen.
	heard, err := nc.SubscribeSync("$SRV.PING.lapse")
	if err != nil {
		t.Fatal(err)
	}
	for calls := make(map[string]int); len(calls) < 2 || slices.Min(slices.Collect(maps.Values(calls))) < 2; {
		call, err := heard.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		calls[call.Reply]++
	}
	frozen := all[0] // the first one is the first writer
	frozen.Freeze()
	eventually(t, "a take-over", func() bool {
		_, err := tryAskFor(nc, "document.upsert.c.a", `{}`, 100*time.Millisecond)
		return err == nil
	})
	for n := range 200 {
		if a, err := tryAskFor(nc, "document.upsert.c.a", fmt.Sprintf(`{"n":%d}`, n), patience); err != nil || a.code != 200 {
			t.Fatalf("write %d: %d %v", n, a.code, err)
		}
	}
	replies, err := nc.SubscribeSync("_INBOX.once.*")
	if err != nil {
		t.Fatal(err)
	}
	const writes = 20
	for n := range writes {
		if err := nc.PublishRequest(fmt.Sprint("lapse.main.api.document.create.c.d", n), fmt.Sprint("_INBOX.once.", n), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	unanswered := 0
	eventually(t, "reads that are all answered", func() bool {
		for range 20 {
			if _, err := tryAskFor(nc, "document.get.c.a", "", 200*time.Millisecond); err != nil {
				unanswered++
				return false
			}
		}
		return true
	})
	t.Logf("%d reads were not answered", unanswered)
	frozen.Signal(syscall.SIGCONT)
	eventually(t, "a writer and a standby", func() bool {
		roles := make(map[string]int)
		for range 20 {
			if a, err := tryAskFor(nc, "status", "", time.Second); err == nil {
				var s status
				if json.Unmarshal(a.body, &s) == nil {
					roles[s.Role]++
				}
			}
		}
		return roles["writer"] > 0 && roles["standby"] > 0
	})
	for range writes {
		reply, err := replies.NextMsg(patience)
		if err != nil || reply.Header.Get("Lapse-Status") != "201" {
			t.Fatalf("%v: %v", reply, err)
		}
	}
	if reply, err := replies.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("a second reply: %s %v", reply.Subject, reply.Header)
	}
}

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
	if err != nil {
		t.Fatal(err)
	}
	for n, end := range []func(*harness.Server){func(*harness.Server) {}, (*harness.Server).Kill} {
		standby.Freeze()
		for name := range log.ConsumerNames(t.Context()).Name() { // to which NATS would send events that are then trimmed
			if err := log.DeleteConsumer(t.Context(), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				t.Fatal(err)
			}
		}
		info, err := log.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
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
