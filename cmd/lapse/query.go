package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
)

// query, document list and due are one command with different flags: due reads the expiry
// index, the others all documents or an index of the condition.
//
// A query without a limit is dangerous for a person, and a silent limit is dangerous for a
// script. So it prints 100 documents unless flags ask for more, and then a script gets exit
// 1 if there were more: it cannot mistake a part for all. A person gets a line, and so does
// a script that has chosen --limit.
//
// The cursor of a page is printed with every failure in the middle, so that a long output
// can go on where it has stopped.

func newQueryCommand(a *app) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "query COLL",
		Short: "Find documents by their content",
		Long: `query prints the documents of a collection that match a CEL expression over doc and
params, or all of them, in the order of their ids unless --order-by says otherwise. A
path is a.b or /a/b.

On a terminal it prints a table, otherwise or with --json one JSON document per line.
A line on standard error says that more documents match, which is exit 1 unless --all or
--limit is given or the output is a terminal. With --explain a line there has the plan and
the cursor, {"plan":{…},"cursor":"…"}, on a terminal in words.`,
		Example: `  lapse query orders --where 'doc.total > 100' --order-by -total,customer
  lapse query orders --where 'doc.customer == params.c' --param c=C1
  lapse query orders --where 'doc.total > 100' --count
  lapse query orders --id-prefix SO0
  lapse query orders --all > orders.jsonl`,
		Args: arguments(1, 1),
	}
	conn.addFlags(cmd)
	return runQuery(a, cmd, &conn)
}

func newDocumentListCommand(a *app, conn *connection) *cobra.Command {
	return runQuery(a, &cobra.Command{
		Use:     "list COLL",
		Short:   "List the documents of a collection, as query does",
		Example: "  lapse document list sessions --id-prefix 83.149. --all",
		Args:    arguments(1, 1),
	}, conn)
}

func newDueCommand(a *app) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "due COLL",
		Short: "Show the documents that expire soon",
		Long: `due prints the documents of a collection that expire soon, the first ones first, each with
the member _deadline, unix seconds. It reads the expiry index, not the whole collection.`,
		Example: `  lapse due sessions --next 1h
  lapse due orders --next 7d --where 'doc.total > 100' --count`,
		Args: arguments(1, 1),
	}
	conn.addFlags(cmd)
	return runQuery(a, cmd, &conn)
}

// runQuery gives a command the flags of a query, lets it run one, and returns it. It finds
// out by the name of the command which flags there are (queryFlags.addFlags).
func runQuery(a *app, cmd *cobra.Command, conn *connection) *cobra.Command {
	var f queryFlags
	out := a.addOutputFlag(cmd)
	f.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		opts, err := f.options(cmd)
		if err != nil {
			return err
		}
		lapse, hangUp, err := conn.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer hangUp()
		coll, err := lapse.Collection(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if f.count {
			return out.count(cmd.Context(), coll, opts, f.explain)
		}
		// --limit 100 is a choice, the default of 100 is not.
		chosen := f.all || cmd.Flags().Changed("limit")
		return out.query(cmd.Context(), coll, opts, f, chosen)
	}
	return cmd
}

// count prints the number of matching documents, a line with nothing else.
func (out *output) count(ctx context.Context, coll *client.Collection, opts []client.QueryOption, explain bool) error {
	var plan client.Plan
	if explain {
		opts = append(opts, client.Explain(&plan))
	}
	n, err := client.Count(ctx, coll, opts...)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out.stdout, n); err != nil || !explain {
		return err
	}
	return out.plan(plan, "")
}

// query prints the matching documents, page by page. Unless the caller has chosen how many,
// it is an error if a file or program gets only the first of them. Pages already printed
// stay printed when a later one fails.
func (out *output) query(ctx context.Context, coll *client.Collection, opts []client.QueryOption, f queryFlags, chosen bool) error {
	var plan client.Plan
	if f.explain {
		opts = append(opts, client.Explain(&plan))
	}
	printer := newDocumentPrinter(out, f.moments)
	cursor := ""
	for page, err := range client.QueryPages[json.RawMessage](ctx, coll, opts...) {
		if err != nil {
			// Without a document printed, the query can simply be run again.
			if printer.printed > 0 {
				err = incomplete(ctx, err, printer.printed, cursor)
			}
			return errors.Join(printer.flush(), err)
		}
		if err := printer.print(page.Items); err != nil {
			return err
		}
		cursor = page.Cursor
	}
	if err := printer.end(); err != nil {
		return err
	}
	if f.explain {
		if err := out.plan(plan, cursor); err != nil {
			return err
		}
	}
	switch {
	case cursor == "":
	case !chosen && !out.isTerminal(out.stdout):
		return fmt.Errorf("more documents match than the %d that are printed: use --all or --limit, or continue with --cursor %s", printer.printed, cursor)
	case !f.explain:
		out.leftOut("more documents match: continue with --cursor %s, or use --all", printable(cursor))
	}
	return nil
}

// incomplete adds to err the cursor after the documents already printed.
func incomplete(ctx context.Context, err error, printed int, cursor string) error {
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return fmt.Errorf("%w; %s printed: continue with --cursor %s", err, plural(printed, "document"), cursor)
}

// plan prints the plan of a query and the next cursor on standard error: for programs as
// one line of JSON in the form of the contract's reply, for people in words.
func (out *output) plan(plan client.Plan, cursor string) error {
	if out.forPeople() {
		_, err := fmt.Fprintln(out.stderr, printable(describePlan(plan, cursor)))
		return err
	}
	var line struct {
		Plan struct {
			Index *string `json:"index"` // null for none, as in the reply
			client.Plan
		} `json:"plan"`
		Cursor string `json:"cursor,omitempty"`
	}
	line.Plan.Plan, line.Cursor = plan, cursor
	if plan.Index != "" {
		line.Plan.Index = &plan.Index
	}
	e := json.NewEncoder(out.stderr)
	e.SetEscapeHTML(false)
	return e.Encode(line)
}

// describePlan describes a plan, as in "index /customer; 120 scanned, 100 returned". Many
// scanned for few returned means that an index is missing.
func describePlan(plan client.Plan, cursor string) string {
	text := "no index"
	if plan.Index != "" {
		text = "index " + plan.Index
	}
	if plan.Behind != nil {
		text += fmt.Sprintf(", %d behind the log", *plan.Behind)
	}
	if len(plan.Building) > 0 {
		text += "; still building " + strings.Join(plan.Building, ", ")
	}
	text += fmt.Sprintf("; %d scanned, %d returned", plan.Scanned, plan.Returned)
	if cursor != "" {
		text += "; more with --cursor " + cursor + ", or --all"
	}
	return text
}
