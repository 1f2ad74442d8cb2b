package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/client/importer"
	"github.com/lapsedb/lapse/schema"
)

// import reads lines, decides by Rules what each becomes, and stores them in batches;
// package client/importer does that. This file has the flags, the refused lines and the
// summary.
//
// A refused line never stops the others: the exit code is 1 at the end. An error that stops
// the run says up to which line all is done, and how to go on. With --op create, running it
// again is always right; with upsert it would give the first lines a second event, so the
// message names the line to begin with.

func newImportCommand(a *app) *cobra.Command {
	var conn connection
	var options importer.Options
	var rejects string
	cmd := &cobra.Command{
		Use:   "import COLL [FILE|-]",
		Short: "Store the documents of a file, one JSON object a line",
		Long: `import stores the documents of a file or of standard input, one JSON object a line, in
batches. It refuses lines, not files: those that cannot be stored are named on standard
error or kept in --rejects, and the exit code is 1. After an interruption, create goes on
when it is run again, and upsert at the line that the message names.

--expires names the member with the moment at which a document ends: unix seconds, unix
milliseconds (from 100000000000 on) or a time as in RFC 3339. It takes the place of a ttl.
Documents whose moment has passed are left out; null is for ever.`,
		Example: `  lapse import sessions sessions.jsonl --dry-run
  lapse import sessions sessions.jsonl --expires /expireAt --drop /expireAt
  lapse import users users.jsonl --id '/_id/$oid' --op create --rejects no.jsonl
  lapse query orders --all --deadlines | lapse import new - --expires /_deadline`,
		Args: arguments(1, 2),
	}
	conn.addFlags(cmd)
	conn.patient(cmd, importTimeout)
	out := a.addOutputFlag(cmd)
	flags := cmd.Flags()
	flags.SortFlags = false
	text := flagText[importer.Options]
	flags.StringVar(&options.ID, "id", "/id", text("ID"))
	flags.StringVar(&options.Op, "op", "upsert", text("Op"))
	flags.StringVar(&options.Expires, "expires", "", text("Expires"))
	flags.StringArrayVar(&options.Drop, "drop", nil, text("Drop"))
	flags.BoolVar(&options.DryRun, "dry-run", false, text("DryRun"))
	flags.StringVar(&rejects, "rejects", "", "write refused lines to `FILE`, with code and reason")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := pointers(&options); err != nil {
			return err
		}
		rules, err := options.Rules()
		if err != nil {
			return usageErrorf("--%s", schema.AsError(err).Message)
		}
		name := "-"
		if len(args) == 2 {
			name = args[1]
		} else if a.isTerminal(a.stdin) {
			return usageErrorf("no documents given: use `%s`", useLine(cmd))
		}
		return out.importFile(cmd.Context(), &conn, args[0], name, rules, rejects)
	}
	return cmd
}

// pointers makes the paths of an import, a.b or /a/b, JSON pointers, in place.
func pointers(o *importer.Options) (err error) {
	of := map[string]*string{"--id": &o.ID, "--expires": &o.Expires}
	for flag, path := range of {
		if *path != "" && err == nil {
			*path, err = pointer(flag, *path)
		}
	}
	for i := range o.Drop {
		if err == nil {
			o.Drop[i], err = pointer("--drop", o.Drop[i])
		}
	}
	return err
}

// importTimeout is the time-out of a request of import: several batches wait for their
// turn.
const importTimeout = 10 * time.Second

// importFile imports a file into a collection: opens, connects, runs, and reports. The
// order of checks is that of their cost to undo: nothing is created, not even --rejects,
// before the collection is known to exist.
func (out *output) importFile(ctx context.Context, conn *connection, collection, name string, rules importer.Rules, rejects string) (err error) {
	file, size, err := out.openInput(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lapse, hangUp, err := conn.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()
	coll, err := lapse.Collection(ctx, collection)
	if err != nil {
		return err
	}
	im, err := rules.Begin(coll)
	if err != nil {
		return errors.New(schema.AsError(err).Message)
	}
	kept := &rejectWriter{to: out.stderr}
	if rejects != "" {
		if err := kept.open(rejects, file, out.stdin); err != nil {
			return err
		}
	}
	began, bar := time.Now(), newProgress(out.stderr, "import: bytes", max(size, 0))
	im.Reject, im.Progress = kept.reject, func(bytes int) { bar.Add(int64(bytes)) }
	err = im.Run(ctx, schema.ReadLines(ctx, file))
	bar.Done()
	// A reject file that is not whole is a failure, too: its lines would be lost.
	if err = errors.Join(err, kept.close()); err != nil {
		return interrupted(ctx, err, rules, im.Last(), name)
	}
	count := im.Count()
	// Most likely --expires names another member than the file has.
	if n := count.Moments.None; n > 0 && n == count.Lines-count.Refused {
		out.leftOut("none of the documents has a moment at %s, so that none ends by it: is it the right path?", rules.Expires)
	}
	if err := out.importCounts(count, rules, coll.Name(), time.Since(began)); err != nil || count.Refused == 0 {
		return err
	}
	return fmt.Errorf("%d of %s refused%s", count.Refused, plural(count.Lines, "line"), kept.advice())
}

// interrupted adds to err where to go on, after the last line that is done. last is 0 when
// nothing is. An error of the file itself, such as a line that is too long, would come
// again: it gets no advice to repeat.
func interrupted(ctx context.Context, err error, rules importer.Rules, last int, name string) error {
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	_, wrongFile := errors.AsType[schema.FileError](err)
	switch {
	case wrongFile && last == 0:
		return err
	case wrongFile:
		return fmt.Errorf("%w; done up to line %d", err, last)
	case rules.DryRun:
		return fmt.Errorf("%w: nothing is stored, start it again", err)
	case rules.Create:
		return fmt.Errorf("%w; done up to line %d: run it again, it leaves alone what is stored", err, last)
	case name == "-":
		return fmt.Errorf("%w; done up to line %d: go on with the input from line %d on", err, last, last+1)
	}
	return fmt.Errorf("%w; done up to line %d: go on with `tail -n +%d %s | lapse import …`", err, last, last+1, name)
}

// rejectWriter keeps the refused lines: in a file, or the first of them as messages. In the
// file each is a line of JSON with its number, what is wrong, and the line itself.
type rejectWriter struct {
	to    io.Writer // for people
	file  *os.File  // nil for people
	count int
}

// mostRejectsShown limits the refused lines that are shown.
const mostRejectsShown = 10

// open creates the file. It refuses one that is read, by its name or as standard input:
// creating truncates it, before its first line was read.
func (w *rejectWriter) open(name string, inputs ...io.Reader) (err error) {
	target, missing := os.Stat(name)
	for _, input := range inputs {
		in, ok := input.(*os.File)
		if !ok || missing != nil {
			continue
		}
		if source, err := in.Stat(); err == nil && source.Mode().IsRegular() && os.SameFile(source, target) {
			return usageErrorf("--rejects %s is the file to import: name another", name)
		}
	}
	if w.file, err = os.Create(name); err != nil {
		return fmt.Errorf("--rejects: %w", err)
	}
	return nil
}

// reject keeps a line.
func (w *rejectWriter) reject(number int, text []byte, fault *client.Error) error {
	w.count++
	if w.file == nil {
		if w.count <= mostRejectsShown {
			fmt.Fprintf(w.to, "line %d: %s (%d %s)\n", number, printable(fault.Message), fault.Code, fault.Name)
		}
		return nil
	}
	_, err := w.file.Write(append(importer.AppendRefused(nil, number, text, fault), '\n'))
	return err
}

// advice says where the refused lines are.
func (w *rejectWriter) advice() string {
	switch {
	case w.file != nil:
		return ": they are in " + w.file.Name()
	case w.count > mostRejectsShown:
		return fmt.Sprintf(", the first %d are above: --rejects FILE keeps them all", mostRejectsShown)
	}
	return ": fix and import them again"
}

func (w *rejectWriter) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// importCounts prints what was imported: a line for people, the counts as JSON for programs. A
// dry run adds a forecast of when the documents would expire.
func (out *output) importCounts(count importer.Count, rules importer.Rules, collection string, took time.Duration) error {
	if !out.forPeople() {
		line, err := json.Marshal(count)
		if err != nil {
			return err
		}
		return out.document(line)
	}
	if _, err := fmt.Fprintln(out.stdout, describeImport(count, rules, collection, took)); err != nil || !rules.DryRun {
		return err
	}
	fmt.Fprintln(out.stdout)
	return out.forecast(count.Forecast)
}

// describeImport writes the counts as one line, and those of --expires as a second one.
// Counts of 0 are left out, but those of the documents that were stored:
//
//	sessions: 9970 created, 20 replaced; 10 refused; 4s, 2498 a second
func describeImport(c importer.Count, rules importer.Rules, collection string, took time.Duration) string {
	would := ""
	if rules.DryRun {
		would = "would be "
	}
	text := fmt.Sprintf("%s: %d %screated, %d %sreplaced", printable(collection), c.Created, would, c.Replaced, would)
	add := func(n int, format string) {
		if n > 0 {
			text += fmt.Sprintf(format, n)
		}
	}
	add(c.Again, " (%d of them sent again after a lost answer: new ones count as replaced, and have two events)")
	add(c.Existed, "; %d already existed, skipped")
	add(c.Past, "; %d past their moment and left out")
	add(c.Refused, "; %d refused")
	if took > time.Second {
		text += fmt.Sprintf("; %s, %.0f a second", showDuration(took.Round(time.Second)), float64(c.Created+c.Replaced)/took.Seconds())
	}
	if rules.Expires == nil {
		return text
	}
	text += "\nmoments:"
	m := c.Moments
	add(m.None, " %d without a moment,")
	add(m.Null, " %d null,")
	add(m.UnixSeconds, " %d in unix seconds,")
	add(m.UnixMilliseconds, " %d in unix milliseconds,")
	add(m.RFC3339, " %d in RFC 3339,")
	return strings.TrimSuffix(text, ",")
}
