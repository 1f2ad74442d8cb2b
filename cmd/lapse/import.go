package main

import (
	"bufio"
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
	"github.com/lapsedb/lapse/schema"
)

func newImportCommand(a *app) *cobra.Command {
	var conn connection
	var f importFlags
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
	flags.StringVar(&f.id, "id", "/id", "take the id from the member at `PATH`, a string or a whole number")
	flags.StringVar(&f.op, "op", "upsert", "`upsert`, or create, which leaves documents alone that exist")
	flags.StringVar(&f.expires, "expires", "", "expire at the moment in the member at `PATH`")
	flags.StringArrayVar(&f.drop, "drop", nil, "leave out the member at `PATH`; repeatable")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would happen and when the documents would expire, and store nothing")
	flags.StringVar(&f.rejects, "rejects", "", "write refused lines to `FILE`, with code and reason")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rules, err := f.rules()
		if err != nil {
			return err
		}
		name := "-"
		if len(args) == 2 {
			name = args[1]
		} else if a.isTerminal(a.stdin) {
			return usageErrorf("no documents given: use `%s`", useLine(cmd))
		}
		return out.importFile(cmd.Context(), &conn, args[0], name, rules, f.rejects)
	}
	return cmd
}

// importTimeout is the time-out of a request of import: several batches wait for their
// turn.
const importTimeout = 10 * time.Second

// importsInFlight is the number of requests at a time.
const importsInFlight = 8

// importFile imports a file into a collection.
func (out *output) importFile(ctx context.Context, conn *connection, collection, name string, rules *importRules, rejects string) (err error) {
	file, size, err := out.openInput(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lapse, hangUp, err := conn.open(ctx)
	if err != nil {
		return err
	}
	defer hangUp()
	coll, err := lapse.Collection(ctx, collection)
	if err != nil {
		return err
	}
	if rules.properties = coll.Info().Properties; rules.expires != nil && rules.properties.DefaultTTL == schema.Off {
		return fmt.Errorf("TTL is off in %s, so that no document would expire at its moment: turn it on first, with `lapse collection replace %s --default-ttl -1`, or import without --expires", collection, collection)
	}
	kept := &rejectWriter{to: out.stderr}
	if rejects != "" {
		if err := kept.open(rejects, file); err != nil {
			return err
		}
	}
	im := &importing{rules: rules, rejects: kept, began: time.Now()}
	im.forecast.begin(im.began.Unix())
	im.bar = newProgress(out.stderr, "import: bytes", max(size, 0))
	err = im.run(ctx, coll, schema.ReadLines(ctx, file))
	im.bar.Done()
	if err = errors.Join(err, kept.close()); err != nil {
		return im.interrupted(ctx, err, name)
	}
	if err := out.imported(im, coll); err != nil || im.count.Refused == 0 {
		return err
	}
	return fmt.Errorf("%d of %d lines were refused%s", im.count.Refused, im.count.Lines, kept.advice())
}

// interrupted adds to err where to go on.
func (im *importing) interrupted(ctx context.Context, err error, name string) error {
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	switch {
	case im.rules.dryRun:
		return fmt.Errorf("%w: nothing is stored, start it again", err)
	case im.rules.create:
		return fmt.Errorf("%w; done up to line %d: run it again, it leaves alone what is stored", err, im.last)
	case name == "-":
		return fmt.Errorf("%w; done up to line %d: go on with the input from line %d on", err, im.last, im.last+1)
	}
	return fmt.Errorf("%w; done up to line %d: go on with `tail -n +%d %s | lapse import …`", err, im.last, im.last+1, name)
}

// rejectWriter keeps the refused lines: in a file, or the first of them as messages.
type rejectWriter struct {
	to    io.Writer // for people
	file  *os.File  // nil for people
	lines *bufio.Writer
	count int
}

// mostRejectsShown limits the refused lines that are shown.
const mostRejectsShown = 10

func (w *rejectWriter) open(name string, input io.Reader) (err error) {
	if in, ok := input.(*os.File); ok {
		source, err := in.Stat()
		target, err2 := os.Stat(name)
		if err == nil && err2 == nil && os.SameFile(source, target) {
			return usageErrorf("--rejects %s is the file to import: name another", name)
		}
	}
	if w.file, err = os.Create(name); err != nil {
		return fmt.Errorf("--rejects: %w", err)
	}
	w.lines = bufio.NewWriter(w.file)
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
	line := fmt.Appendf(nil, `{"line":%d,"code":%d,"error":%q,"message":`, number, fault.Code, fault.Name)
	line = schema.AppendString(line, fault.Message)
	if schema.CheckJSON(text) == nil {
		line = append(append(line, `,"document":`...), text...)
	} else {
		line = schema.AppendString(append(line, `,"text":`...), strings.ToValidUTF8(string(text), "\uFFFD"))
	}
	_, err := w.lines.Write(append(line, "}\n"...))
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
	return ": mend them and import them again"
}

func (w *rejectWriter) close() error {
	if w.file == nil {
		return nil
	}
	return errors.Join(w.lines.Flush(), w.file.Close())
}

// imported prints what was imported.
func (out *output) imported(im *importing, coll *client.Collection) error {
	if im.rules.dryRun {
		im.count.Forecast = im.forecast.result(coll.Info())
	}
	if !out.forPeople() {
		line, err := json.Marshal(im.count)
		if err != nil {
			return err
		}
		return out.document(line)
	}
	if _, err := fmt.Fprintln(out.stdout, im.describe(coll.Name())); err != nil || !im.rules.dryRun {
		return err
	}
	fmt.Fprintln(out.stdout)
	return out.forecast(im.count.Forecast)
}
