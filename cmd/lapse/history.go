package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

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
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "at most `N` events")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var body []byte
		if cmd.Flags().Changed("limit") {
			body = fmt.Appendf(nil, `{"limit":%d}`, limit)
		}
		reply, err := conn.do(cmd.Context(), "history", args[0], args[1], body)
		if err != nil {
			return err
		}
		var list struct {
			Events []json.RawMessage `json:"events"`
		}
		if err := json.Unmarshal(reply, &list); err != nil {
			return fmt.Errorf("the reply cannot be read: %w", err)
		}
		if !out.forPeople() {
			return out.lines(list.Events)
		}
		printer := newEventPrinter(out)
		for _, raw := range list.Events {
			var e schema.Event
			if err := json.Unmarshal(raw, &e); err != nil {
				return fmt.Errorf("the reply cannot be read: %w", err)
			}
			if err := printer.print(&e); err != nil {
				return err
			}
		}
		return printer.flush()
	}
	return cmd
}
