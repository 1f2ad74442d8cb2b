package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
)

func TestProcesses(t *testing.T) {
	c, err := client.Connect(address)
	check(t, err)
	defer c.Close()
	all, err := c.Processes(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	if p := all[0]; p.Role != "writer" || p.ID == "" || p.Started == "" || p.Error != "" || p.Seq == 0 {
		t.Errorf("%+v", p)
	}

	other, err := client.New(c.Conn(), client.WithDatabase("other"))
	check(t, err)
	if all, err := other.Processes(t.Context()); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("of another database: %+v, %v", all, err)
	}
	denied := newStandin(t).connect("nobody")
	c, err = client.New(denied)
	check(t, err)
	if _, err := c.Processes(t.Context()); !errors.Is(err, client.ErrUnavailable) || err.Error() != "this NATS user has no permission to ask all processes: let it publish to $SRV.INFO.lapse and receive replies" {
		t.Errorf("without permission: %v", err)
	}
}

// TestProcessesOfAll: a list ends with the last process that another one knows, without waiting
// for more. One that does not answer is named.
func TestProcessesOfAll(t *testing.T) {
	s := newStandin(t)
	knows := make(chan string, 1)
	s.subscribe("$SRV.INFO.lapse", func(m *nats.Msg) {
		for _, id := range []string{"a", "b"} {
			if err := m.Respond(fmt.Appendf(nil, `{"id":%[1]q,"process":{"id":%[1]q,"databases":[{"database":"main","role":"copy","seq":7},{"database":"other","role":"none"}],"knows":%[2]s}}`, id, <-knows)); err != nil {
				t.Error(err)
			}
		}
	})
	list := func(timeout time.Duration, first, second string) string {
		t.Helper()
		c := s.as("lapse", client.WithTimeout(timeout))
		go func() { knows <- first; knows <- second }()
		all, err := c.AllProcesses(t.Context())
		check(t, err)
		text := ""
		for _, p := range all {
			text += fmt.Sprintf("%s/%s:%s %d %s,", p.Database, p.ID, p.Role, p.Seq, p.Error)
		}
		return text
	}
	if got := list(time.Hour, `{"b":{"main":"copy"}}`, `{"a":{"main":"copy"}}`); got != "main/a:standby 7 ,main/b:standby 7 ," {
		t.Error(got)
	}
	if got := list(time.Second, `{"b":{}}`, `{"c":{"main":"writer","other":"none"}}`); got != "main/c:writer 0 no answer within 1s,main/a:standby 7 ,main/b:standby 7 ," {
		t.Error(got)
	}
}

// TestProcessesFlooded: the processes of the first 4096 replies are listed, and an error says
// that there were more. What no process replies is ignored, however long it is.
func TestProcessesFlooded(t *testing.T) {
	s := newStandin(t)
	reply := func(m *nats.Msg, format string, args ...any) {
		if err := m.Respond(fmt.Appendf(nil, format, args...)); err != nil {
			t.Error(err)
		}
	}
	const info = `{"name":"lapse","id":"%s","version":"1.0.0","metadata":{"database":"main"},"type":"%s"}`
	s.subscribe("$SRV.INFO.lapse", func(m *nats.Msg) {
		reply(m, info, "first", "")
		reply(m, info, strings.Repeat("x", 256), "")
		reply(m, info, "large", strings.Repeat("x", 256<<10))
		for i := range 5000 {
			reply(m, info, fmt.Sprint("id", i), "")
		}
	})
	c := s.as("lapse")
	var all []client.Process
	var err error
	for all == nil { // a pause in the replies ends them
		if all, err = c.Processes(t.Context()); err == nil {
			all = nil
		}
	}
	if want := "more than 4096 replies came to $SRV.INFO.lapse, so processes may be missing: `nats request --replies=0 '$SRV.INFO.lapse' ''` shows who sends them"; !errors.Is(err, client.ErrTooLarge) || err.Error() != want {
		t.Errorf("%v", err)
	}
	ids := make(map[string]bool)
	for _, p := range all {
		ids[p.ID] = true
	}
	if len(all) != 4094 || !ids["first"] || ids["large"] || !ids["id4092"] || ids["id4093"] {
		t.Errorf("%d processes, first: %v, large: %v", len(all), ids["first"], ids["large"])
	}
}
