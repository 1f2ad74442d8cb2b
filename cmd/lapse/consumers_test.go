package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// TestConsumers: the consumers of the log with what is behind and stuck; programs that read
// for a while are only in the JSON. One too far behind is an error, after the list.
func TestConsumers(t *testing.T) {
	t.Parallel()
	s := newStandin(t)
	for range 3 {
		if _, err := s.js.Publish(t.Context(), "lapse.main.events.c.DocumentCreated", []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	for _, config := range []jetstream.ConsumerConfig{
		{Durable: "billing", Metadata: map[string]string{schema.ConsumerTries: `{"seq":2,"failed":4}`}},
		{Durable: "mail", PauseUntil: new(time.Now().Add(time.Hour))},
		{Durable: schema.ReaderConsumer + "x"},
	} {
		config.AckPolicy = jetstream.AckExplicitPolicy
		consumer, err := s.js.CreateConsumer(t.Context(), "LAPSE_main", config)
		check(t, err)
		if config.Durable != "billing" {
			continue
		}
		m, err := consumer.Next()
		if err == nil {
			err = m.DoubleAck(t.Context())
		}
		check(t, err)
	}
	run := func(terminal bool, args ...string) (code int, stdout, stderr string) {
		var out, complaint bytes.Buffer
		a := newApp(strings.NewReader(""), &out, &complaint)
		a.isTerminal, a.colour, a.width = func(any) bool { return terminal }, false, func(any) int { return 100 }
		a.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		code = a.run(t.Context(), append([]string{"consumers", "--timeout", "1m", "--server", s.server.ClientURL()}, args...))
		return code, out.String(), complaint.String()
	}
	const table = `CONSUMER  ACCOUNT  BEHIND  UNACKED  SEQUENCE  ACKED
billing                 2        0         1  2 h ago  event 2 failed 4 times
mail                    3        0         0  never    paused
`
	if code, stdout, stderr := run(true); code != 0 || stdout != table || stderr != "" {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr := run(false, "--max-behind", "2")
	if code != exitFailed || strings.Count(stdout, "\n") != 3 || !strings.Contains(stdout, `"failing":2,"failures":4`) || !strings.HasSuffix(stderr, "more than 2 events behind: mail by 3\n") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr := run(false, "--max-behind", "3"); code != 0 {
		t.Errorf("%d %s", code, stderr)
	}
	if code, _, stderr := run(false, "--max-behind", "-1"); code != exitUsage {
		t.Errorf("%d %s", code, stderr)
	}
}
