package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/schema"
)

// replay answers from an exported log, by the fold and the queries that a server uses, in a
// temporary directory. The moment counts in two ways: no event after --until is folded, and
// time stands at --until, or without a time at the last event. So a document past its
// deadline at that moment is gone, as for any request.

func newReplayCommand(a *app) *cobra.Command {
	var ask replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE|- [JSON]",
		Short: "Answer from an exported log, as of any moment",
		Long: `replay folds a log that lapse export or lapse simulate printed, up to a sequence or
a moment, and answers as the server would have answered then: documents, a query, or
the digest that status shows. It needs no server. A document past its deadline at the
moment does not exist, whether its expiry is in the log by then or not.`,
		Example: `  lapse export > log.jsonl
  lapse replay log.jsonl
  lapse replay log.jsonl --until 2015-05-17T10:05:03Z --get orders/SO05
  lapse replay log.jsonl --until 42 --query orders '{"where":"doc.total > 100"}'
  lapse simulate mutations.jsonl | lapse replay -`,
		Args: arguments(1, 2),
	}
	out := a.addOutputFlag(cmd)
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&ask.until, "until", "", "end at a sequence, a time or a duration ago: `SEQ|TIME|DURATION`")
	flags.StringArrayVar(&ask.get, "get", nil, "print document `COLL/ID`; repeatable")
	flags.StringVar(&ask.query, "query", "", "query `COLL`; the JSON argument is the query, without it all documents")
	flags.BoolVar(&ask.digest, "digest", false, "print the digest of the state (default without --get and --query)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		questions, name, err := ask.questions(args)
		if err != nil {
			return err
		}
		until := position{seq: math.MaxUint64}
		if ask.until != "" {
			if until, err = parsePosition("--until", ask.until, time.Now()); err != nil {
				return err
			}
		}
		return out.replay(cmd.Context(), name, until, questions)
	}
	return cmd
}

// replayFlags are the flags of replay.
type replayFlags struct {
	until, query string
	get          []string
	digest       bool
}

// question is one request to a replay, at a log time in ms. more reports that the answer is
// a page of more. Questions are read from the flags before the file is, which may take
// minutes.
type question func(ctx context.Context, replay *offline.Replay, now int64) (answer []byte, more bool, err error)

// questions returns the requests that the flags name, and the file: each --get, then
// --query, then the digest, which is the answer if nothing was asked.
func (f *replayFlags) questions(args []string) (all []question, file string, err error) {
	file = args[0]
	for _, path := range f.get {
		collection, id, ok := strings.Cut(path, "/")
		if !ok {
			return nil, "", usageErrorf("--get %q: use COLL/ID", path)
		}
		name, err := schema.ParseCollectionName(collection)
		if err != nil {
			return nil, "", usageErrorf("--get %q: %v", path, err)
		}
		document, err := schema.ParseDocumentID(id)
		if err != nil {
			return nil, "", usageErrorf("--get %q: %v", path, err)
		}
		all = append(all, func(_ context.Context, replay *offline.Replay, now int64) ([]byte, bool, error) {
			body, _, err := replay.Document(now, name, document)
			return body, false, err
		})
	}
	if f.query != "" {
		name, err := schema.ParseCollectionName(f.query)
		if err != nil {
			return nil, "", usageErrorf("--query %q: %v", f.query, err)
		}
		body := ""
		if len(args) == 2 {
			body = args[1]
		}
		// replay --query COLL JSON FILE reads as well.
		if strings.HasPrefix(file, "{") && !strings.HasPrefix(body, "{") && body != "" {
			file, body = body, file
		}
		var query struct {
			Where  string
			Params map[string]json.RawMessage
		}
		if json.Unmarshal([]byte(body), &query) == nil { // else replay has the better message
			if unused := unusedParam(query.Where, query.Params); unused != "" {
				return nil, "", usageErrorf("--query: params.%s is given, and where does not use it: correct its name, or leave it out", unused)
			}
		}
		all = append(all, func(ctx context.Context, replay *offline.Replay, now int64) ([]byte, bool, error) {
			reply, err := replay.Query(ctx, now, name, []byte(body))
			var page struct{ Cursor string }
			if err == nil {
				err = json.Unmarshal(reply, &page)
			}
			return reply, page.Cursor != "", err
		})
	} else if len(args) == 2 {
		return nil, "", usageErrorf("%q given without --query: use --query COLL JSON", args[1])
	}
	if f.digest || len(all) == 0 {
		all = append(all, func(_ context.Context, replay *offline.Replay, _ int64) ([]byte, bool, error) {
			return []byte(replay.Digest()), false, nil
		})
	}
	return all, file, nil
}

// replay folds a file and answers all questions, even after one that fails: the answers
// stand in the order of the flags, failures on standard error. Events that do not fit those
// before them, as in a log without its beginning, are left out and counted: exit 1 whatever
// the answers.
func (out *output) replay(ctx context.Context, name string, until position, questions []question) (err error) {
	file, size, err := out.openInput(name)
	if err != nil {
		return err
	}
	defer file.Close()
	host.CollectLess()
	dir, err := os.MkdirTemp("", "lapse-replay-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	replay, err := offline.NewReplay(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, replay.Close()) }()
	bar := newProgress(out.stderr, "replay", size)
	count, err := foldEvents(ctx, file, replay, until, bar)
	bar.Done()
	if err != nil {
		return err
	}
	// Without --until the present is the last event, not this machine's clock: the answer
	// must not change from day to day.
	now := replay.Time()
	if until.time != nil {
		now = until.time.UnixMilli()
	}
	var refused error
	for _, ask := range questions {
		answer, more, err := ask(ctx, replay, now)
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case err != nil && refused == nil:
			refused = err
		case err != nil:
			refused = fmt.Errorf("%w; %w", refused, err)
		default:
			if err := out.document(answer); err != nil {
				return err
			}
			if more {
				out.leftOut(`more documents match: give the query the "cursor" of this reply, or a "limit" up to %d`, client.MaxPageSize)
			}
		}
	}
	// Last, so that the answers are there for whoever wants them all the same.
	if n := replay.Mismatches(); n > 0 {
		mismatches := fmt.Errorf("%d of %s left out, as not fitting the events before: give the whole log from its beginning; `lapse audit` lists them", n, plural(count, "event"))
		if refused != nil {
			return fmt.Errorf("%w; %w", refused, mismatches)
		}
		return mismatches
	}
	return refused
}

// before reports whether the position is before an event, so that this event is no part of
// what ends there. An event at exactly the position belongs to it.
func (p position) before(e *schema.Event) bool {
	if p.time == nil {
		return p.seq < e.Seq
	}
	return p.time.UnixMilli() < e.Time
}

var errInterrupted = errors.New("interrupted: start it again")

// foldEvents folds the events of a file up to a position, and returns their number.
// Sequences must ascend; gaps are legal, since an export leaves internal events out.
func foldEvents(ctx context.Context, file io.Reader, replay *offline.Replay, until position, bar *progress) (count int, err error) {
	last := uint64(0)
	for line, err := range schema.ReadEvents(ctx, file) {
		switch e := line.Event; {
		case ctx.Err() != nil:
			return count, errInterrupted
		case err != nil:
			return count, err
		case e.Seq <= last:
			return count, fmt.Errorf("line %d: event %d comes after event %d: give a log in the order of its sequences, as `lapse export` prints it", line.Number, e.Seq, last)
		case until.before(e):
			return count, replay.Fold()
		}
		last = line.Seq
		bar.Add(int64(line.Bytes))
		count++
		if err := replay.Add(line.Event); err != nil {
			return count, err
		}
	}
	return count, replay.Fold()
}
