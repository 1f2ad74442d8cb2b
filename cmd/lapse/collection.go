package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// Collections on the command line. create and replace take their properties either from
// flags or as the JSON of a request, never both: what wins would be a guess.
//
// replace by flags changes the properties that flags name, which the contract's replace
// does not: it takes all. So it reads the collection and sends it back changed, with
// If-Match, and again when somebody else was faster (Client.ChangeProperties). Members that
// this version does not know come back as they were. replace by JSON is the contract's
// replace.

func newCollectionCommand(a *app) *cobra.Command {
	var conn connection
	cmd := group("collection", "Create, show, change and delete collections",
		newCollectionPutCommand(a, &conn, "create", "Create a collection",
			"Create a collection. Without properties, nothing in it expires."),
		newCollectionGetCommand(a, &conn),
		newCollectionPutCommand(a, &conn, "replace", "Change properties of a collection, or replace all",
			`Change the properties of a collection that flags name; the others stay as they are, and
so does metadata of other names. JSON replaces all properties, '{}' by the defaults:
--default-ttl off, --indexing-mode consistent, --include-path none, --previous-images,
--warn-before off and --metadata none. A new default TTL covers existing documents at once;
on a terminal, replace asks if any would expire.`),
		newCollectionDeleteCommand(a, &conn),
		newCollectionListCommand(a, &conn),
	)
	cmd.Example = "  lapse collection create sessions --default-ttl 30m\n  lapse collection list"
	conn.addFlags(cmd)
	return cmd
}

// newCollectionPutCommand is create or replace, by verb. The switch in RunE is the table of
// what may be given:
//
//	JSON and flags     refused
//	JSON or -          sent as it is
//	flags, create      become JSON
//	flags, replace     change the present properties
//	nothing, create    an empty body; refused if standard input seems to offer one
//	nothing, replace   refused: it would reset everything
func newCollectionPutCommand(a *app, conn *connection, verb, short, long string) *cobra.Command {
	var p propertyFlags
	cmd := &cobra.Command{
		Use:   verb + " COLL [JSON|-]",
		Short: short,
		Long:  long + "\n\nSet the properties by flags, or as JSON as in a request; - reads it from standard input.",
		Example: fmt.Sprintf(`  lapse collection %s sessions --default-ttl 30m --include-path /customerId
  lapse collection %s sessions '{"defaultTtl":1800}'`, verb, verb),
		Args: arguments(1, 2),
	}
	out := a.addOutputFlag(cmd)
	p.addFlags(cmd)
	var sure *confirmation
	if verb == "replace" {
		sure = a.addYesFlag(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		named := map[string]any{}
		err := p.change(cmd, named)
		if err != nil {
			return err
		}
		var body, reply []byte
		switch {
		case len(args) == 2 && len(named) > 0:
			return usageErrorf("properties given as JSON and as flags: use one of them")
		case len(args) == 2:
			body, err = a.readArgument(args[1])
		// Asked here, and not with the body below: changeCollection sends what it has read
		// and changed.
		case len(named) > 0 && verb == "replace":
			if err = sure.askTTL(cmd.Context(), conn, args[0], named); err != nil {
				return err
			}
			if reply, err = p.changeCollection(cmd, conn, args[0]); err != nil {
				return err
			}
			return out.document(reply)
		case len(named) > 0:
			body, err = json.Marshal(named)
		case verb == "replace":
			return usageErrorf("no properties given: use --default-ttl and the like to change some, - to read all from standard input, or '{}' to reset them all")
		case a.inputOffered():
			return usageErrorf("no properties given, and standard input is read for - only: use - to read them, or '{}' for a collection without any")
		}
		if err == nil && verb == "replace" {
			var given map[string]any
			_ = json.Unmarshal(body, &given) // the server has the better message
			err = sure.askTTL(cmd.Context(), conn, args[0], given)
		}
		if err != nil {
			return err
		}
		if reply, err = conn.do(cmd.Context(), "collection."+verb, args[0], "", body); err != nil {
			return err
		}
		return out.document(reply)
	}
	return cmd
}

// askTTL asks if documents would expire at once by the defaultTtl of properties, and how
// many. The forecast request counts them under that policy without changing anything. It
// goes on without a question where nothing would expire or nobody is at the terminal.
func (c *confirmation) askTTL(ctx context.Context, conn *connection, name string, properties map[string]any) error {
	ttl, given := properties["defaultTtl"]
	if !given || !c.needed() {
		return nil
	}
	body, err := json.Marshal(map[string]any{"defaultTtl": ttl})
	if err != nil {
		return err
	}
	forecast, _, err := ask[client.Forecast](ctx, conn, "forecast", name, "", body)
	if err != nil || forecast.AtOnce == 0 {
		return err
	}
	return c.ask(ctx, fmt.Sprintf("%d of %s in collection %s expire at once by this default TTL. Change it?", forecast.AtOnce, plural(forecast.Documents, "document"), name))
}

// changeCollection sets the properties that flags name, keeps the others, and returns the
// collection as the server shows it.
func (p *propertyFlags) changeCollection(cmd *cobra.Command, conn *connection, name string) ([]byte, error) {
	lapse, hangUp, err := conn.connect(cmd.Context())
	if err != nil {
		return nil, err
	}
	defer hangUp()
	reply, err := lapse.ChangeProperties(cmd.Context(), name, func(now *client.Reply) ([]byte, error) {
		var properties map[string]any
		if err := readReply(now.Body, &properties); err != nil {
			return nil, err
		}
		// A reply has these besides the properties; a request has not.
		for _, system := range []string{"id", "documents", "bytes", "_ts", "_etag"} {
			delete(properties, system)
		}
		if err := p.change(cmd, properties); err != nil {
			return nil, err
		}
		return json.Marshal(properties)
	})
	if err != nil {
		return nil, err
	}
	return reply.Body, nil
}

// propertyFlags are the flags for properties of a collection.
type propertyFlags struct {
	defaultTTL, warnBefore string
	indexingMode           client.IndexingMode
	includePaths           []string
	previousImages         bool
	metadata               []string // NAME=VALUE, or none
}

func (p *propertyFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&p.defaultTTL, "default-ttl", "", "default TTL: `SECONDS` or a duration, -1 for none, off to disable TTL")
	choiceVar(flags, &p.indexingMode, "indexing-mode", "", "update indexes with each write, later, or have none", schema.IndexingModes...)
	flags.StringArrayVar(&p.includePaths, "include-path", nil, "index the values at this JSON `POINTER`, like /customerId; repeat for more, or none for no index")
	flags.BoolVar(&p.previousImages, "previous-images", true, "include the content in delete, expiry and warning events")
	flags.StringVar(&p.warnBefore, "warn-before", "", "log a DocumentExpiring so long before each deadline: `SECONDS` or a duration, off for none")
	flags.StringArrayVar(&p.metadata, "metadata", nil, "store a string with the collection, like owner=shop: `NAME=VALUE`; repeat for more, or none to remove all")
}

// change sets the properties that flags name, in the JSON of a collection or in an empty
// object. TTLs stay JSON as given, so that the server refuses what is illegal in its own
// words.
func (p *propertyFlags) change(cmd *cobra.Command, properties map[string]any) error {
	given := cmd.Flags().Changed
	if given("default-ttl") {
		ttl, err := parseTTL("--default-ttl", p.defaultTTL)
		if err != nil {
			return err
		}
		properties["defaultTtl"] = json.RawMessage(ttl)
	}
	// The policy of the collection, so that --indexing-mode alone keeps its paths.
	policy, _ := properties["indexingPolicy"].(map[string]any)
	if policy == nil {
		policy = map[string]any{}
	}
	if given("indexing-mode") {
		policy["indexingMode"] = p.indexingMode
	}
	if given("include-path") {
		paths := make([]map[string]string, 0, len(p.includePaths))
		for _, path := range p.includePaths {
			if path != "none" {
				path, err := pointer("--include-path", path)
				if err != nil {
					return err
				}
				paths = append(paths, map[string]string{"path": path})
			} else if len(p.includePaths) > 1 {
				return usageErrorf("--include-path none excludes every other path: leave one of them out")
			}
		}
		policy["includedPaths"] = paths
	}
	if len(policy) > 0 {
		properties["indexingPolicy"] = policy
	}
	if given("previous-images") {
		properties["previousImages"] = p.previousImages
	}
	if given("warn-before") {
		before, err := parseSeconds("--warn-before", p.warnBefore, "seconds, off,")
		if err != nil {
			return err
		}
		properties["warnBefore"] = json.RawMessage(before)
	}
	if given("metadata") {
		return p.changeMetadata(properties)
	}
	return nil
}

// changeMetadata sets the metadata that flags name and keeps that of other names. null, for
// none, removes all.
func (p *propertyFlags) changeMetadata(properties map[string]any) error {
	if slices.Equal(p.metadata, []string{"none"}) {
		properties["metadata"] = nil
		return nil
	}
	changed := make(map[string]any)
	for _, text := range p.metadata {
		name, value, ok := strings.Cut(text, "=")
		switch _, twice := changed[name]; {
		case text == "none":
			return usageErrorf("--metadata none removes all metadata: leave it or the others out")
		case !ok || name == "":
			return usageErrorf("--metadata %q: use NAME=VALUE, like owner=shop, or none", text)
		case twice:
			return usageErrorf("--metadata %s= given twice: use one of them", name)
		}
		changed[name] = value
	}
	if metadata, ok := properties["metadata"].(map[string]any); ok {
		maps.Copy(metadata, changed)
		changed = metadata
	}
	properties["metadata"] = changed
	return nil
}

func newCollectionGetCommand(a *app, conn *connection) *cobra.Command {
	cmd := &cobra.Command{Use: "get COLL", Short: "Show a collection, with the number and size of its documents", Example: "  lapse collection get sessions", Args: arguments(1, 1)}
	out := a.addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		reply, err := conn.do(cmd.Context(), "collection.get", args[0], "", nil)
		if err != nil {
			return err
		}
		return out.document(reply)
	}
	return cmd
}

// newCollectionDeleteCommand deletes a collection. Counting for the question is a request
// of its own; what is written in between is deleted as well.
func newCollectionDeleteCommand(a *app, conn *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete COLL",
		Short: "Delete a collection with all its documents",
		Long: `Delete a collection with all its documents. On a terminal it says how many these are
and asks.`,
		Example: "  lapse collection delete sessions",
		Args:    arguments(1, 1),
	}
	sure := a.addYesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if sure.needed() {
			c, _, err := ask[client.CollectionInfo](cmd.Context(), conn, "collection.get", args[0], "", nil)
			if err != nil {
				return err
			}
			if err := sure.ask(cmd.Context(), fmt.Sprintf("Delete collection %s with %s?", args[0], plural(c.Documents, "document"))); err != nil {
				return err
			}
		}
		_, err := conn.do(cmd.Context(), "collection.delete", args[0], "", nil)
		return err
	}
	return cmd
}

func newCollectionListCommand(a *app, conn *connection) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the collections", Example: "  lapse collection list", Args: arguments(0, 0)}
	out := a.addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return listCollections(cmd.Context(), conn, out)
	}
	return cmd
}

// listCollections prints all collections. The reply to a large list is in pages, each with
// a cursor for the next.
func listCollections(ctx context.Context, conn *connection, out *output) error {
	lapse, hangUp, err := conn.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()
	var all []json.RawMessage
	for body := []byte(nil); ; {
		reply, err := lapse.Do(ctx, "collection.list", "", "", body)
		if err != nil {
			return err
		}
		var page struct {
			Collections []json.RawMessage `json:"collections"`
			Cursor      string            `json:"cursor"`
		}
		if err := readReply(reply.Body, &page); err != nil {
			return err
		}
		all = append(all, page.Collections...)
		if page.Cursor == "" {
			break
		}
		if body, err = json.Marshal(map[string]string{"cursor": page.Cursor}); err != nil {
			return err
		}
	}
	if !out.forPeople() {
		return out.lines(all)
	}
	var rows [][]any
	for _, raw := range all {
		var info client.CollectionInfo
		if err := readReply(raw, &info); err != nil {
			return err
		}
		images := "yes"
		if !info.PreviousImages {
			images = "no"
		}
		ttl := describeTTL(int64(info.DefaultTTL))
		if info.WarnBefore > 0 {
			ttl += ", warns " + describeTTL(int64(info.WarnBefore)) + " before"
		}
		rows = append(rows, []any{info.Name, ttl, string(info.IndexingMode), printable(strings.Join(info.IncludedPaths, " ")), images})
	}
	_, err = fmt.Fprint(out.stdout, out.list([]string{"COLLECTION", "DEFAULT TTL", "INDEXING", "PATHS", "PREVIOUS IMAGES"}, rows, 0, 3))
	return err
}
