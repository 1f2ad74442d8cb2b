package gate

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

var update = flag.Bool("update", false, "write the permissions into nats.conf and the pages")

const main schema.DatabaseName = "main"

// TestFiles: nats.conf and the pages have the permissions of this package.
func TestFiles(t *testing.T) {
	replaceIn(t, "../../nats.conf", func(replace func(after, before, text string)) {
		for user, role := range map[string]Role{
			"PROCESSOR": Processor, "BULK": Bulk, "GATE_LOG": GateLog, "OPERATOR": Operator | Mover,
			"SERVICE": Service, "GATE_CLIENTS": GateClients, "CLIENT": Client, "PRODUCER": Producer, "AUDITOR": Auditor,
		} {
			replace("nkey: $NKEY_"+user+"\n", "\n      }\n", "        permissions {\n"+lists(role)+"        }")
		}
		var exports strings.Builder
		for _, subject := range ofApplication() {
			exports.WriteString("      " + appExport(subject) + "\n")
		}
		replace("# MSG.NEXT has all of them.\n", "    ]\n", exports.String())
		replace("can evade a part of them.\n", "    ]\n", "      "+strings.Join(app.imports(), "\n      ")+"\n")
	})
	replaceIn(t, "../../docs/accounts.md", func(replace func(after, before, text string)) {
		replace("## The account to copy\n\n```text\n", "```\n", app.Config())
	})
	replaceIn(t, "../../deploy/nsc.sh", func(replace func(after, before, text string)) {
		var shared, requests []string
		for _, subject := range ofApplication() {
			if request, ok := strings.CutPrefix(subject, "$JS.API."); ok {
				requests = append(requests, "'"+request+"'")
			} else if !strings.HasPrefix(subject, "$SRV.") {
				shared = append(shared, "'"+strings.ReplaceAll(subject, "billing", `'"$durable"'`)+"'")
			}
		}
		users := nscUser("LAPSE", "gate-log", GateLog) + nscUser("CLIENTS", "service", Service) + nscUser("CLIENTS", "gate-clients", GateClients)
		replace("  nsc add user --account LAPSE --name bulk\n", "  for user in log bulk", "  "+strings.TrimSuffix(strings.ReplaceAll(users, "\n", "\n  "), "  "))
		replace("has 320 MB for LAPSE and APP\n", "  share CLIENTS \"$app\" \"$subject\"", "for subject in "+strings.Join(pack(shared, " "), " \\\n  ")+"; do\n")
		replace("  take \"$app\" \"$subject\"\ndone\n", "  share CLIENTS \"$app\" \"\\$JS.API.", "for request in "+strings.Join(pack(requests, " "), " \\\n  ")+"; do\n")
	})
}

// replaceIn compares a file with what change makes of it, or writes that.
func replaceIn(t *testing.T, file string, change func(replace func(after, before, text string))) {
	t.Helper()
	is, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(is)
	change(func(after, before, text string) {
		head, rest, found := strings.Cut(want, after)
		at := strings.Index(rest, before)
		if !found || at < 0 || strings.Contains(rest, after) {
			t.Fatalf("%s has no place after %q", file, after)
		}
		want = head + after + text + rest[at:]
	})
	if want == string(is) {
		return
	} else if !*update {
		t.Fatalf("%s has other permissions than this package: go test ./processor/gate -run TestFiles -update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
}

// app is the account APP of nats.conf.
var app = Application{Account: "APP", User: "app", Databases: []schema.DatabaseName{main}, Durables: []string{"billing"}}

// ofApplication is what app imports from CLIENTS.
func ofApplication() (subjects []string) {
	for _, p := range allPublish() {
		subjects = append(subjects, app.fromClients(p)...)
	}
	return subjects
}

func appExport(subject string) string {
	responses := ""
	if strings.HasPrefix(subject, "$SRV.") { // each process replies
		responses = "response_type: stream, "
	}
	return fmt.Sprintf("{ service: %q, %saccounts: [APP] }", subject, responses)
}

// lists returns the permissions of a user of nats.conf.
func lists(role Role) string {
	const indent = "          "
	var b strings.Builder
	for _, kind := range []struct {
		name       string
		allow, not []permission
	}{{"publish", allPublish(), mayNotPublish}, {"subscribe", maySubscribe, mayNotSubscribe}} {
		if not := list(kind.not, role, indent+"  "); not == "[]" {
			fmt.Fprintf(&b, "%s%s: %s\n", indent, kind.name, list(kind.allow, role, indent))
		} else {
			fmt.Fprintf(&b, "%s%s: {\n%[1]s  allow: %[3]s\n%[1]s  deny: %[4]s\n%[1]s}\n", indent, kind.name, list(kind.allow, role, indent+"  "), not)
		}
	}
	return b.String()
}

// list returns the subjects of a role below their comments.
func list(all []permission, role Role, indent string) string {
	var lines, subjects []string
	comment := ""
	for _, p := range all {
		more := of([]permission{p}, role, []schema.DatabaseName{main})
		if len(more) > 0 && p.why != "" && p.why != comment {
			comment = p.why
			lines = append(append(lines, pack(subjects, ", ")...), strings.Split("# "+strings.ReplaceAll(comment, "\n", "\n# "), "\n")...)
			subjects = nil
		}
		for _, subject := range more {
			subjects = append(subjects, fmt.Sprintf("%q", subject))
		}
	}
	lines = append(lines, pack(subjects, ", ")...)
	if comment == "" && len(lines) < 2 {
		return "[" + strings.Join(lines, "") + "]"
	}
	return "[\n  " + indent + strings.Join(lines, "\n  "+indent) + "\n" + indent + "]"
}

// nscUser returns the command that adds a user with a role.
func nscUser(account, name string, role Role) string {
	parts := []string{"nsc add user --account " + account + " --name " + name}
	for _, list := range []struct {
		flag string
		all  []permission
	}{{"--allow-pub", allPublish()}, {"--deny-pub", mayNotPublish}, {"--allow-sub", maySubscribe}} {
		for _, subjects := range pack(of(list.all, role, []schema.DatabaseName{main}), ",") {
			parts = append(parts, list.flag+" '"+subjects+"'")
		}
	}
	return strings.Join(parts, " \\\n  ") + "\n"
}

// pack joins words to lines that are not too long to read.
func pack(words []string, separator string) (lines []string) {
	for _, word := range words {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+len(word) < 105 {
			lines[last] += separator + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
