package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
)

func newCollectionCommand(a *app) *cobra.Command {
	var conn connection
	cmd := group("collection", "Create, show, change and delete collections",
		newCollectionPutCommand(a, &conn, "create", "Create a collection",
			"Create a collection. Without properties, nothing in it expires."),
		newCollectionGetCommand(a, &conn),
		newCollectionPutCommand(a, &conn, "replace", "Replace all properties of a collection",
			"Replace all properties of a collection: what is not given gets its default.\nA new default TTL covers the documents already there, at once."),
		newCollectionDeleteCommand(a, &conn),
		newCollectionListCommand(a, &conn),
	)
	conn.addFlags(cmd)
	return cmd
}

func newCollectionPutCommand(a *app, conn *connection, verb, short, long string) *cobra.Command {
	var p propertyFlags
	cmd := &cobra.Command{
		Use:   verb + " COLL [JSON|-]",
		Short: short,
		Long:  long + "\n\nGive the properties as flags, or as JSON as in the documentation.",
		Example: fmt.Sprintf(`  lapse collection %s sessions --default-ttl 30m --include-path /customerId
  lapse collection %s sessions '{"defaultTtl":1800}'`, verb, verb),
		Args: arguments(1, 2),
	}
	out := a.addOutputFlag(cmd)
	p.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body, err := p.body(cmd)
		if err != nil {
			return err
		}
		switch {
		case len(args) == 2 && body != nil:
			return usageErrorf("properties given as JSON and as flags: use one of them")
		case len(args) == 2:
			if body, err = a.readArgument(args[1]); err != nil {
				return err
			}
		case body == nil && verb == "replace":
			return usageErrorf("no properties given, which would reset them all: use --default-ttl and the like, or '{}' to do so")
		}
		reply, err := conn.do(cmd.Context(), "collection."+verb, args[0], "", body)
		if err != nil {
			return err
		}
		return out.document(reply)
	}
	return cmd
}

// propertyFlags are collection properties as flags.
type propertyFlags struct {
	defaultTTL, indexingMode string
	includePaths             []string
	previousImages           bool
}

func (p *propertyFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&p.defaultTTL, "default-ttl", "", "`SECONDS` or a duration after which documents expire, -1 for only by a ttl of their own, off")
	flags.StringVar(&p.indexingMode, "indexing-mode", "", "`MODE`: consistent, lazy or none")
	flags.StringArrayVar(&p.includePaths, "include-path", nil, "JSON `POINTER` to index, like /customerId; repeat for more")
	flags.BoolVar(&p.previousImages, "previous-images", true, "whether events of deletion and expiry carry the last content")
}

// body returns the flags as JSON, nil if none was given.
func (p *propertyFlags) body(cmd *cobra.Command) ([]byte, error) {
	given := cmd.Flags().Changed
	var members []string
	if given("default-ttl") {
		ttl, err := parseTTL("--default-ttl", p.defaultTTL)
		if err != nil {
			return nil, err
		}
		members = append(members, `"defaultTtl":`+ttl)
	}
	if given("indexing-mode") || given("include-path") {
		policy := map[string]any{}
		if given("indexing-mode") {
			policy["indexingMode"] = p.indexingMode
		}
		if given("include-path") {
			paths := make([]map[string]string, 0, len(p.includePaths))
			for _, path := range p.includePaths {
				paths = append(paths, map[string]string{"path": path})
			}
			policy["includedPaths"] = paths
		}
		text, err := json.Marshal(policy)
		if err != nil {
			return nil, err
		}
		members = append(members, `"indexingPolicy":`+string(text))
	}
	if given("previous-images") {
		members = append(members, fmt.Sprintf(`"previousImages":%t`, p.previousImages))
	}
	if members == nil {
		return nil, nil
	}
	return []byte("{" + strings.Join(members, ",") + "}"), nil
}

func newCollectionGetCommand(a *app, conn *connection) *cobra.Command {
	cmd := &cobra.Command{Use: "get COLL", Short: "Show a collection, with the number and size of its documents", Args: arguments(1, 1)}
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

func newCollectionDeleteCommand(a *app, conn *connection) *cobra.Command {
	cmd := &cobra.Command{Use: "delete COLL", Short: "Delete a collection with all its documents", Args: arguments(1, 1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		_, err := conn.do(cmd.Context(), "collection.delete", args[0], "", nil)
		return err
	}
	return cmd
}

func newCollectionListCommand(a *app, conn *connection) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the collections", Args: arguments(0, 0)}
	out := a.addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return listCollections(cmd.Context(), conn, out)
	}
	return cmd
}

func listCollections(ctx context.Context, conn *connection, out *output) error {
	reply, err := conn.do(ctx, "collection.list", "", "", nil)
	if err != nil {
		return err
	}
	var list struct {
		Collections []json.RawMessage `json:"collections"`
	}
	if err := json.Unmarshal(reply, &list); err != nil {
		return fmt.Errorf("the reply cannot be read: %w", err)
	}
	if !out.forPeople() {
		return out.lines(list.Collections)
	}
	t := out.table("COLLECTION", "DEFAULT TTL", "INDEXING", "PATHS", "PREVIOUS IMAGES")
	for _, raw := range list.Collections {
		var info client.CollectionInfo
		if err := json.Unmarshal(raw, &info); err != nil {
			return fmt.Errorf("the reply cannot be read: %w", err)
		}
		images := "yes"
		if !info.PreviousImages {
			images = "no"
		}
		t.AppendRow([]any{info.Name, describeTTL(int64(info.DefaultTTL)), string(info.IndexingMode), strings.Join(info.IncludedPaths, " "), images})
	}
	return out.render(t)
}
