package gate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestDeliverSubject: where a consumer delivers is shown to its owner only, and nobody else
// has other events delivered there. It stays when a client edits the consumer of an account.
func TestDeliverSubject(t *testing.T) {
	s, _ := accountServer(t, 1)
	type user struct {
		*nats.Conn
		api string
	}
	users := map[string]user{
		"app":     {connect(t, s, "app", nats.CustomInboxPrefix("_INBOX.app")), "LAPSE.API.CONSUMER."},
		"other":   {connect(t, s, "other"), "LAPSE.API.CONSUMER."},
		"client":  {connect(t, s, "clients"), "$JS.API.CONSUMER."},
		"auditor": {connect(t, s, "clients", nats.CustomInboxPrefix("_INBOX.auditor")), "$JS.API.CONSUMER."},
	}
	const inbox = "_INBOX.app.x"
	ask := func(by, operation, body string) string {
		t.Helper()
		m, err := users[by].Request(users[by].api+operation, []byte(body), 30*time.Second)
		if err != nil {
			t.Fatal(by, operation, err)
		}
		return string(m.Data)
	}
	create := func(by, name, deliver, more string) string {
		t.Helper()
		return ask(by, "CREATE."+log+"."+name, fmt.Sprintf(`{"stream_name":%q,"config":{"name":%[2]q,"durable_name":%[2]q,"ack_policy":"explicit","deliver_subject":%q%s}`, log, name, deliver, more))
	}
	shows := func(what, reply string, want bool) {
		t.Helper()
		if strings.Contains(reply, `"error"`) || strings.Contains(reply, `"deliver_subject":"`+inbox+`"`) != want || strings.Contains(reply, "deliver_subject") != want {
			t.Errorf("%s: %s", what, reply)
		}
	}
	shows("create", create("app", "push", inbox, "}"), true)
	for by := range users {
		own := by == "app"
		shows(by+": info", ask(by, "INFO."+log+".push", ""), own)
		list := ask(by, "LIST."+log, "")
		shows(by+": list", list, own)
		var page server.JSApiConsumerListResponse
		if err := json.Unmarshal([]byte(list), &page); err != nil || page.Total != 1 || page.Consumers[0].Config.Metadata["lapse.account"] != "APP" || page.Consumers[0].NumPending != 1 {
			t.Errorf("%s: list: %s, %v", by, list, err)
		}
		if by == "other" || by == "client" {
			shows(by+": create again", create(by, "push", "", "}"), false)
		}
	}
	shows("pause", ask("client", "PAUSE."+log+".push", `{}`), false)
	shows("reset", ask("client", "RESET."+log+".push", ""), false)
	shows("edit", create("client", "push", "", `,"description":"edited"},"action":"update"`), false)
	if info := ask("app", "INFO."+log+".push", ""); !strings.Contains(info, "edited") {
		t.Error(info)
	}

	for by := range users {
		refused := "use an inbox of your own"
		if by == "app" {
			refused = `"stream_name"` // as one account it knows
		}
		if reply := create(by, "second-of-"+by, inbox, "}"); !strings.Contains(reply, refused) {
			t.Errorf("%s: %s", by, reply)
		}
	}
	if reply := create("other", "own", "_INBOX.other.x", "}"); !strings.Contains(reply, "_INBOX.other.x") {
		t.Error(reply)
	}
	if reply := create("other", "own", inbox, `},"action":"update"`); !strings.Contains(reply, "use an inbox of your own") {
		t.Error(reply)
	}
	for _, name := range []string{"push", "second-of-app"} {
		ask("app", "DELETE."+log+"."+name, "")
	}
	shows("of nobody any more", create("client", "free", inbox, `,"metadata":{"lapse.account":"APP","lapse.made_by":"auditor"}}`), true)
}
