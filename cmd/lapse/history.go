package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/schema"
)

func newHistoryCommand(a *app) *cobra.Command {
	var conn connection
	var limit int
	cmd := &cobra.Command{
		Use:   "history COLL ID",
		Short: "Show the events of a document, newest first",
		Long:  "history shows the events of a document, newest first, also of an expired or deleted one\nand of earlier documents with the same id. If a document was deleted with its collection,\nits last event is the CollectionDeleted.",
		Args:  arguments(2, 2),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	cmd.Flags().IntVarP(&limit, "limit", "n", 100, fmt.Sprintf("at most `N` events, up to %d", answer.MaxHistory))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		events, older, err := conn.history(cmd.Context(), args[0], args[1], limit)
		if err != nil {
			return err
		}
		if err := out.history(events); err != nil || older == "" {
			return err
		}
		out.leftOut("%s", older)
		return nil
	}
	return cmd
}

// history returns the newest events of a document, at most limit, and how to get the older
// ones, "" if there are none.
func (c *connection) history(ctx context.Context, name, id string, limit int) (events []json.RawMessage, older string, err error) {
	newest := func(limit int) ([]json.RawMessage, error) {
		list, _, err := ask[struct {
			Events []json.RawMessage `json:"events"`
		}](ctx, c, "history", name, id, fmt.Appendf(nil, `{"limit":%d}`, limit))
		return list.Events, err
	}
	if limit < 1 || limit > answer.MaxHistory {
		return nil, "", usageErrorf("--limit %d: give 1 to %d", limit, answer.MaxHistory)
	}
	next := min(limit+1, answer.MaxHistory) // one more than is printed shows that there are more
	more := false
	events, err = newest(next)
	if errors.Is(err, client.ErrTooLarge) && next > limit { // perhaps for that one only
		events, err = newest(limit)
		more = true
	}
	if err != nil {
		return nil, "", err
	}
	var oldest schema.Event
	if n := len(events); n > limit {
		events, more = events[:limit], true
	} else if n > 0 {
		if err := readReply(events[n-1], &oldest); err != nil {
			return nil, "", err
		}
	}
	switch {
	case more:
		older = fmt.Sprintf("there are older events: use a larger --limit, up to %d", answer.MaxHistory)
	case len(events) == answer.MaxHistory:
		older = "there may be older events: `lapse export` prints the whole log"
	case len(events) == 0 || oldest.Previous != 0:
		older = "older events were trimmed from the log: only an earlier export has them"
	}
	return events, older, nil
}

// history prints the events of a document.
func (out *output) history(events []json.RawMessage) error {
	if !out.forPeople() {
		return out.lines(events)
	}
	printer := newEventPrinter(out)
	for _, raw := range events {
		var e schema.Event
		if err := readReply(raw, &e); err != nil {
			return err
		}
		if err := printer.print(&e); err != nil {
			return err
		}
	}
	return printer.flush()
}
