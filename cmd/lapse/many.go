package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/client/importer"
)

// One operation on all documents that match --where. It works in two steps, so that nothing
// happens to a document that nobody has counted:
//
// First it reads id and version of each match, all pages, and asks on a terminal. Then it
// changes each by its id if it still has that version. A document that was changed or ended
// in between is left alone and counted as such: whether it still matches is not known.
// Documents that begin to match in between are not touched.
//
// It is not atomic. Each document succeeds or fails on its own; the first mostRejectsShown
// refusals are printed, and any refusal is exit 1. After an interruption a second run
// reaches the rest; what is done and still matches, it does again.
//
// Memory: ids and versions of all matches are kept, not their content.

// many changes all documents that match, instead of the one with an id. It belongs to one
// command, whose flags it adds.
type many struct {
	*confirmation
	filter queryFlags // those that choose
	did    string     // "deleted"
}

// addMany lets a command for one document change many, by --where instead of an ID.
func (a *app) addMany(cmd *cobra.Command, did string) *many {
	m := &many{confirmation: a.addYesFlag(cmd), did: did}
	m.filter.addChoice(cmd.Flags())
	m.filter.addIDPrefix(cmd.Flags())
	cmd.Use = cmd.Name() + " COLL {ID | --where CEL}"
	cmd.Long = cmd.Short + `.
With --where, all that match: they are counted first, and each is changed only in the version
that was counted. --where true is for all documents of the collection.`
	cmd.Args = arguments(1, 2)
	return m
}

// chosen reports whether the command is for many documents.
func (m *many) chosen(cmd *cobra.Command, args []string) (bool, error) {
	given := cmd.Flags().Changed
	where := given("where")
	switch {
	case where && len(args) > 1:
		return false, usageErrorf("ID and --where given: use one of them")
	case where && (given("if-match") || given("msg-id") || given("min-age") || given("content") || given("deadlines")):
		return false, usageErrorf("--if-match, --msg-id, --min-age, --content and --deadlines are for one document: with --where, each is changed only in the version that was counted")
	case !where && (given("id-prefix") || given("param") || given("params")):
		return false, usageErrorf("--id-prefix, --param and --params are for --where: use --where true for all documents whose id begins with a prefix")
	case !where && len(args) < 2:
		return false, usageErrorf("no document given: use `%s`", useLine(cmd))
	}
	return where, nil
}

// run finds the documents, asks, and changes each. add adds the operation on one document
// to a batch, under the condition unchanged.
func (m *many) run(cmd *cobra.Command, conn *connection, collection string, add func(b *client.Batch, id string, unchanged client.OperationOption)) error {
	ctx := cmd.Context()
	// Only held documents can be released; for the rest a release would be a 409.
	m.filter.all, m.filter.held = true, cmd.Name() == "release"
	m.filter.selections = []string{"/id", "/_etag"}
	opts, err := m.filter.options(cmd)
	if err != nil {
		return err
	}
	lapse, hangUp, err := conn.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()
	coll, err := lapse.Collection(ctx, collection)
	if err != nil {
		return err
	}
	var found []client.Item[json.RawMessage]
	for item, err := range client.Query[json.RawMessage](ctx, coll, opts...) {
		if err != nil {
			return err
		}
		item.Value = nil
		found = append(found, item)
	}
	if len(found) > 0 && m.needed() {
		if err := m.ask(ctx, fmt.Sprintf("%s: %s of collection %s found. Go on?", cmd.Name(), plural(len(found), "document"), collection)); err != nil {
			return err
		}
	}
	return m.change(ctx, coll, found, add)
}

// change changes the documents that were found. Each is a batch of its own for RunBatches,
// which puts many into one request and returns the results in the order of found.
func (m *many) change(ctx context.Context, coll *client.Collection, found []client.Item[json.RawMessage], add func(*client.Batch, string, client.OperationOption)) error {
	batches := func(yield func(*client.Batch) bool) {
		for _, item := range found {
			b := coll.Batch()
			if add(b, item.ID, client.OnlyIfMatch(item.ETag)); !yield(b) {
				return
			}
		}
	}
	var done, meanwhile, refused, next int
	bar := newProgress(m.stderr, "documents", int64(len(found)))
	defer bar.Done()
	for results, err := range client.RunBatches(ctx, batches, importer.InFlight) {
		if err != nil {
			if ctx.Err() != nil {
				err = errors.New("interrupted")
			}
			return fmt.Errorf("%w; %d of %s %s: run it again for the rest", err, done, plural(len(found), "document"), m.did)
		}
		switch err := results[0].Err; {
		case err == nil:
			done++
		case errors.Is(err, client.ErrPreconditionFailed), errors.Is(err, client.ErrDocumentNotFound):
			meanwhile++
		default:
			if refused++; refused <= mostRejectsShown {
				fmt.Fprintf(m.stderr, "%s: %s\n", printable(found[next].ID), printable(err.Error()))
			}
		}
		next++
		bar.Add(1)
	}
	bar.Done()
	text := fmt.Sprintf("%s: %d %s", printable(coll.Name()), done, m.did)
	if meanwhile > 0 {
		text += fmt.Sprintf("; %d changed or gone meanwhile, left alone", meanwhile)
	}
	if _, err := fmt.Fprintln(m.stdout, text); err != nil || refused == 0 {
		return err
	}
	of := ""
	if refused > mostRejectsShown {
		of = fmt.Sprintf(" of the first %d", mostRejectsShown)
	}
	return fmt.Errorf("%d of %s refused: the lines above say why%s", refused, plural(len(found), "document"), of)
}
