package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/schema"
)

// newHistoryCommand prints the events of a document, newest first, from a database.
func newHistoryCommand(a *app) *cobra.Command {
	var conn connection
	var limit int
	cmd := &cobra.Command{
		Use:     "history COLL ID",
		Short:   "Show the events of a document, newest first",
		Long:    "history shows the events of a document, newest first, also of an expired or deleted one\nand of earlier documents with the same id. If a document was deleted with its collection,\nits last event is the CollectionDeleted.",
		Example: "  lapse history sessions 83.149.9.216",
		Args:    arguments(2, 2),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	cmd.Flags().IntVarP(&limit, "limit", "n", 100, "at most `N` events")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if limit < 1 {
			return usageErrorf("--limit %d: give 1 or more", limit)
		}
		lapse, hangUp, err := conn.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer hangUp()
		older, err := out.history(limit, func(body []byte) (*client.Reply, error) {
			return lapse.Do(cmd.Context(), "history", args[0], args[1], body)
		})
		if err == nil && older != "" {
			out.leftOut("%s", older)
		}
		return err
	}
	return cmd
}

// history prints events of a document, newest first and at most limit, page by page as ask
// requests them. It returns how to get the older ones, "" if there are none.
//
// Retention trims the log from its beginning. The oldest event that is left tells: one that
// ends or continues a version (Previous) needs an earlier event, which is gone.
func (out *output) history(limit int, ask func(body []byte) (*client.Reply, error)) (older string, err error) {
	var previous schema.Version // of the last event printed
	for request := map[string]any{}; ; {
		request["limit"] = min(limit, answer.MaxHistory)
		body, err := json.Marshal(request)
		if err != nil {
			return "", err
		}
		reply, err := ask(body)
		if err != nil {
			return "", err
		}
		var page struct {
			Events []json.RawMessage `json:"events"`
			Cursor string            `json:"cursor"`
		}
		if err := readReply(reply.Body, &page); err != nil {
			return "", err
		}
		if previous, err = out.events(page.Events); err != nil {
			return "", err
		}
		// A page may have fewer events than were asked for: it ends early rather than
		// exceed a message.
		limit -= len(page.Events)
		switch {
		case page.Cursor == "" && (previous != 0 || len(page.Events) == 0):
			return "older events were trimmed from the log: only an earlier export has them", nil
		case page.Cursor == "":
			return "", nil
		case limit <= 0:
			return "there are older events: use a larger --limit", nil
		}
		request["cursor"] = page.Cursor
	}
}

// events prints events and returns Previous of the last, 0 if it has none. Programs get the
// server's bytes.
func (out *output) events(events []json.RawMessage) (previous schema.Version, err error) {
	printer := newEventPrinter(out)
	for _, raw := range events {
		var e schema.Event
		if err := readReply(raw, &e); err != nil {
			return 0, err
		}
		previous = e.Previous
		if !printer.people {
			continue
		}
		if err := printer.print(&e); err != nil {
			return 0, err
		}
	}
	if !printer.people {
		return previous, out.lines(events)
	}
	return previous, printer.flush()
}
