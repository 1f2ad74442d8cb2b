package test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// TestSchedulesOfNATS: the commands of docs/delayed-jobs.md that need no lapse schedule a
// message and cancel it; one whose time has come is published, and its schedule is gone.
func TestSchedulesOfNATS(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/delayed-jobs.md")
	check(t, err)
	_, section, _ := strings.Cut(string(text), "## When NATS alone is enough\n")
	var lines [][]string
	for line := range strings.Lines(shellBlock.FindStringSubmatch(section)[1]) {
		lines = append(lines, split(t, line))
	}
	if len(lines) != 3 {
		t.Fatalf("the page has %d commands", len(lines))
	}
	nc := harness.Dial(t, startNATS(t, nil))
	run := func(words []string) (reply struct {
		Error  *struct{ Description string }
		Purged int
	}) {
		t.Helper()
		m := nats.NewMsg(words[len(words)-2])
		m.Data = []byte(words[len(words)-1])
		for i, word := range words {
			if word == "-H" {
				name, value, _ := strings.Cut(words[i+1], ":")
				m.Header[name] = []string{value}
			}
		}
		answer, err := nc.RequestMsg(m, patience)
		if err == nil {
			err = json.Unmarshal(answer.Data, &reply)
		}
		if err != nil || reply.Error != nil {
			t.Fatalf("%v: %v, %s", words, err, answer.Data)
		}
		return reply
	}
	create, schedule, cancel := lines[0], lines[1], lines[2]
	run(create)
	run(schedule)
	if purged := run(cancel).Purged; purged != 1 {
		t.Errorf("the cancel removes %d schedules", purged)
	}

	for i, word := range schedule {
		schedule[i] = strings.Replace(word, "2060", "2000", 1)
	}
	run(schedule)
	js, err := jetstream.New(nc)
	check(t, err)
	jobs, err := js.OrderedConsumer(t.Context(), "JOBS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"jobs.>"}})
	check(t, err)
	if m, err := jobs.Next(jetstream.FetchMaxWait(patience)); err != nil || m.Subject() != "jobs.mail-7" || string(m.Data()) != "say hi" {
		t.Errorf("the job: %v, %v", m, err)
	}
	if purged := run(cancel).Purged; purged != 0 {
		t.Errorf("after the job, the cancel removes %d schedules", purged)
	}
}
