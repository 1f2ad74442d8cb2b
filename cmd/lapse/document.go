package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// Commands for one document, each a request of the contract with the same name. Bodies go
// to the server as they are given; only --ttl adds a member, textually, so that numbers
// keep their digits and members their order.
//
// A reply about a live document goes to standard output. On a terminal get, and the
// operations that have no content, add its expiry on standard error (liveOutput.live).
// delete prints nothing.

func newDocumentCommand(a *app) *cobra.Command {
	var conn connection
	cmd := group("document", "Create, show, change and delete documents",
		newDocumentPutCommand(a, &conn, "create", "Create a document that does not exist"),
		newDocumentGetCommand(a, &conn),
		newDocumentPutCommand(a, &conn, "replace", "Replace an existing document"),
		newDocumentPutCommand(a, &conn, "upsert", "Create or replace a document"),
		newDocumentPutCommand(a, &conn, "patch", "Change members of a document (JSON Merge Patch; null removes)"),
		newDocumentDeleteCommand(a, &conn),
		newDocumentTouchCommand(a, &conn),
		newDocumentRestoreCommand(a, &conn),
		newDocumentHoldCommand(a, &conn),
		newDocumentReleaseCommand(a, &conn),
		newDocumentListCommand(a, &conn),
	)
	cmd.Example = `  lapse document upsert sessions 83.149.9.216 '{"requests":1}' --ttl 30m
  lapse document list sessions`
	conn.addFlags(cmd)
	return cmd
}

// changeFlags are the conditions of a write.
type changeFlags struct{ ifMatch, msgID string }

// addFlags adds the flags that the operation knows: create and restore make a document that
// does not exist, so there is no version to match.
func (f *changeFlags) addFlags(cmd *cobra.Command) {
	if cmd.Name() != "create" && cmd.Name() != "restore" {
		cmd.Flags().StringVar(&f.ifMatch, "if-match", "", "only if the document still has `ETAG`")
	}
	cmd.Flags().StringVar(&f.msgID, "msg-id", "", "apply requests with the same `ID` once within two minutes")
}

// options returns the options of the flags that are given.
func (f *changeFlags) options(cmd *cobra.Command) (opts []client.RequestOption) {
	if cmd.Flags().Changed("if-match") {
		opts = append(opts, client.IfMatch(f.ifMatch))
	}
	if cmd.Flags().Changed("msg-id") {
		opts = append(opts, client.MsgID(f.msgID))
	}
	return opts
}

// endFlags are the flags of a given end: the headers Lapse-Expire-At and
// Lapse-Keep-Deadline of section 9 of the contract.
type endFlags struct {
	expireAt     string
	keepDeadline bool
}

func (f *endFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.expireAt, "expire-at", "", "expire at `TIME`, as in RFC 3339 or in unix seconds")
	if cmd.Name() != "create" {
		cmd.Flags().BoolVar(&f.keepDeadline, "keep-deadline", false, "keep the deadline that the document has")
	}
}

// options returns at most one option for each flag. More than one is refused by the caller.
func (f *endFlags) options() (opts []client.RequestOption, err error) {
	if seconds, err := strconv.ParseInt(f.expireAt, 10, 64); err == nil {
		opts = append(opts, client.ExpireAt(time.Unix(seconds, 0)).Request())
	} else if at, err := schema.ParseTime(f.expireAt); err == nil {
		opts = append(opts, client.ExpireAt(at).Request())
	} else if f.expireAt != "" {
		return nil, usageErrorf("--expire-at %q: use a time like 2015-05-17T10:05:03Z, or unix seconds", f.expireAt)
	}
	if f.keepDeadline {
		opts = append(opts, client.KeepDeadline().Request())
	}
	return opts, nil
}

// newDocumentPutCommand is create, replace, upsert or patch, by verb. The document comes
// from the argument, from standard input for - or without an argument, or is {} where --ttl
// or --expire-at alone says enough: for patch that changes the end and nothing else, for
// create and upsert it makes a document of its id and end.
func newDocumentPutCommand(a *app, conn *connection, verb, short string) *cobra.Command {
	var change changeFlags
	var ttl string
	var end endFlags
	long := short + ".\nWithout JSON, or with -, it is read from standard input"
	if verb != "replace" {
		long += "; --ttl or --expire-at alone needs none"
	}
	cmd := &cobra.Command{
		Use:     verb + " COLL ID [JSON|-]",
		Short:   short,
		Long:    long + ".",
		Example: "  lapse document " + verb + ` sessions 83.149.9.216 '{"requests":1}' --ttl 30m`,
		Args:    arguments(2, 3),
	}
	out := a.addLiveFlags(cmd)
	change.addFlags(cmd)
	cmd.Flags().StringVar(&ttl, "ttl", "", "set the member ttl: `SECONDS` or a duration, -1 for no expiry")
	end.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		opts, err := end.options()
		if err != nil {
			return err
		}
		// The server refuses them, too; here the error names the flags.
		if len(opts) > 0 && ttl != "" || len(opts) > 1 {
			return usageErrorf("--ttl, --expire-at and --keep-deadline contradict each other: use one of them")
		}
		var body []byte
		// keep-deadline is not among these: alone it would be a write that changes nothing.
		switch endGiven := ttl != "" || end.expireAt != ""; {
		case len(args) == 3:
			body, err = a.readArgument(args[2])
		case endGiven && verb == "replace":
			return usageErrorf("--ttl or --expire-at alone would replace the document by one with nothing else: use `lapse document patch`, which keeps the rest, or give the document")
		case endGiven:
			body = []byte("{}")
		// Without this the command would wait for a person who expects an answer.
		case a.isTerminal(a.stdin):
			return usageErrorf("no document given: use `%s`", useLine(cmd))
		default:
			body, err = a.readArgument("-")
		}
		if err == nil && ttl != "" {
			body, err = withTTL(body, ttl)
		}
		if err != nil {
			return err
		}
		reply, err := conn.request(cmd.Context(), "document."+verb, args[0], args[1], body, append(opts, change.options(cmd)...)...)
		if err != nil {
			return err
		}
		return out.document(reply)
	}
	return cmd
}

// withTTL adds the member ttl to a JSON object that has none: before the last brace, so
// that the rest stays byte for byte. What is no object goes to the server, which refuses it
// in its own words.
//
//	{"a":1.50}  30m  →  {"a":1.50,"ttl":1800}
func withTTL(body []byte, ttl string) ([]byte, error) {
	value, err := parseTTL("--ttl", ttl)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return body, nil // not an object: the server has the better message
	}
	if _, there := members["ttl"]; there {
		return nil, usageErrorf("ttl given in the document and as --ttl: use one of them")
	}
	body = bytes.TrimRight(body, " \t\r\n")
	out := append(make([]byte, 0, len(body)+24), body[:len(body)-1]...)
	if len(members) > 0 {
		out = append(out, ',')
	}
	return append(out, `"ttl":`+value+`}`...), nil
}

func newDocumentGetCommand(a *app, conn *connection) *cobra.Command {
	var minSeq uint64
	cmd := &cobra.Command{Use: "get COLL ID", Short: "Show a document", Example: "  lapse document get sessions 83.149.9.216", Args: arguments(2, 2)}
	out := a.addLiveFlags(cmd)
	cmd.Flags().Uint64Var(&minSeq, "min-seq", 0, "wait until the state includes log sequence `SEQ`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var opts []client.RequestOption
		if minSeq > 0 {
			opts = append(opts, client.MinSeq(minSeq))
		}
		reply, err := conn.request(cmd.Context(), "document.get", args[0], args[1], nil, opts...)
		if err != nil {
			return err
		}
		return out.live(reply)
	}
	return cmd
}

// document prints the document in a reply. With --deadlines it has _deadline, _rule and
// _hold, which the reply has as headers.
func (out *liveOutput) document(reply *client.Reply) error {
	body := reply.Body
	if out.deadlines {
		body = schema.AddLifetime(bytes.TrimSpace(body), 0, reply.Lifetime.Schema())
	}
	return out.output.document(body)
}

// live prints the reply about one live document and, if a person sits at the terminal,
// its expiry on standard error.
func (out *liveOutput) live(reply *client.Reply) error {
	err := out.document(reply)
	if err != nil || !out.forPeople() {
		return err
	}
	if reply.Held {
		_, err := fmt.Fprintln(out.stderr, strings.TrimSuffix("held: "+printable(reply.Reason), ": "))
		return err
	}
	if reply.Rule == client.NoRule {
		return nil
	}
	_, err = fmt.Fprintf(out.stderr, "expires in %s (%s)\n", describeSpan(time.Until(reply.Deadline)), reply.Rule)
	return err
}

// describeSpan describes a length of time by its two largest units, rounded up to seconds:
// a document that expires in 0.4 s lives.
func describeSpan(d time.Duration) string {
	seconds := max(int64((d+time.Second-1)/time.Second), 0)
	units := []struct {
		name    string
		seconds int64
	}{{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}}
	var parts []string
	for _, unit := range units {
		if n := seconds / unit.seconds; n > 0 || unit.seconds == 1 && len(parts) == 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, unit.name))
			seconds %= unit.seconds
		} else if len(parts) > 0 {
			break // 1 d and 5 s is 1 d
		}
		if len(parts) == 2 {
			break
		}
	}
	return strings.Join(parts, " ")
}

func newDocumentDeleteCommand(a *app, conn *connection) *cobra.Command {
	var change changeFlags
	cmd := &cobra.Command{Use: "delete", Short: "Delete a document", Example: `  lapse document delete sessions --where 'doc.user == "ann"'`}
	change.addFlags(cmd)
	all := a.addMany(cmd, "deleted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if many, err := all.chosen(cmd, args); err != nil {
			return err
		} else if many {
			return all.run(cmd, conn, args[0], func(b *client.Batch, id string, unchanged client.OperationOption) { b.Delete(id, unchanged) })
		}
		_, err := conn.do(cmd.Context(), "document.delete", args[0], args[1], nil, change.options(cmd)...)
		return err
	}
	return cmd
}

// documentChange completes a command that changes a document without its content, or many
// where add is their operation; body returns that of the request. did is the word for the
// summary of many, as in "3 renewed". restore has no add: an id that lives no more matches
// no condition.
func (a *app) documentChange(conn *connection, cmd *cobra.Command, body func() ([]byte, error), did string, add func(b *client.Batch, id string, unchanged client.OperationOption)) *cobra.Command {
	var change changeFlags
	var all *many
	operation := "document." + cmd.Name()
	cmd.Args = arguments(2, 2)
	out := a.addLiveFlags(cmd)
	change.addFlags(cmd)
	if add != nil {
		all = a.addMany(cmd, did)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if all != nil {
			if many, err := all.chosen(cmd, args); err != nil {
				return err
			} else if many {
				return all.run(cmd, conn, args[0], add)
			}
		}
		sent, err := body()
		if err != nil {
			return err
		}
		reply, err := conn.request(cmd.Context(), operation, args[0], args[1], sent, change.options(cmd)...)
		if err != nil {
			return err
		}
		return out.live(reply)
	}
	return cmd
}

// noBody is the body of an operation that has none.
func noBody() ([]byte, error) { return nil, nil }

func newDocumentTouchCommand(a *app, conn *connection) *cobra.Command {
	var minAge string
	var content bool
	cmd := &cobra.Command{
		Use:     "touch",
		Short:   "Start the time to live of a document again",
		Example: `  lapse document touch sessions 83.149.9.216 --min-age 3m --content`,
	}
	cmd.Flags().StringVar(&minAge, "min-age", "", "only if its last modification is at least `SECONDS` or a duration ago")
	cmd.Flags().BoolVar(&content, "content", false, "print the document, renewed or not")
	return a.documentChange(conn, cmd, func() ([]byte, error) {
		var members []string
		if minAge != "" {
			seconds, err := parseSeconds("--min-age", minAge, "seconds")
			if err != nil {
				return nil, err
			}
			members = append(members, `"minAge":`+seconds)
		}
		if content {
			members = append(members, `"content":true`)
		}
		if members == nil {
			return nil, nil
		}
		return []byte("{" + strings.Join(members, ",") + "}"), nil
	}, "renewed", func(b *client.Batch, id string, unchanged client.OperationOption) { b.Touch(id, unchanged) })
}

func newDocumentRestoreCommand(a *app, conn *connection) *cobra.Command {
	var version string
	cmd := &cobra.Command{
		Use:   "restore COLL ID",
		Short: "Bring back a document that expired or was deleted",
		Long: `restore creates the document again with its last content, or that of --version, as a new
event of the log. Its ttl is as it was and counts from now. lapse history shows the versions.`,
		Example: `  lapse document restore sessions 83.149.9.216 --version 5`,
	}
	cmd.Flags().StringVar(&version, "version", "", "the version to restore, an `ETAG`")
	return a.documentChange(conn, cmd, func() ([]byte, error) {
		if version == "" {
			return nil, nil
		}
		return append(schema.AppendString([]byte(`{"version":`), version), '}'), nil
	}, "", nil)
}

func newDocumentHoldCommand(a *app, conn *connection) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "hold",
		Short:   "Keep a document from expiry and deletion until its release",
		Example: `  lapse document hold orders SO05 --reason 'case 4711'`,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, as `TEXT`; holding again changes it")
	return a.documentChange(conn, cmd, func() ([]byte, error) {
		if reason == "" {
			return nil, nil
		}
		return schema.AppendReason(nil, reason), nil
	}, "held", func(b *client.Batch, id string, unchanged client.OperationOption) { b.Hold(id, reason, unchanged) })
}

func newDocumentReleaseCommand(a *app, conn *connection) *cobra.Command {
	return a.documentChange(conn, &cobra.Command{Use: "release", Short: "End the hold of a document", Example: "  lapse document release orders SO05"}, noBody,
		"released", func(b *client.Batch, id string, unchanged client.OperationOption) { b.Release(id, unchanged) })
}
