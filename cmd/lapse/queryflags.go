package main

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// queryFlags are the flags of query, list and due; addChoice and addIDPrefix alone are also
// those of commands for many documents.
type queryFlags struct {
	params, idPrefix, cursor   string
	where                      []string
	param, orderBy, selections []string
	limit                      int
	minSeq                     uint64
	all, count, explain        bool
	deadlines, held            bool
	next                       time.Duration // of due; 0 for query
	moments                    momentFlags
}

func (f *queryFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	f.addChoice(flags)
	if cmd.Name() == "due" {
		f.next = 24 * time.Hour
		flags.Var(&durationFlag{to: &f.next, least: time.Second, seconds: true}, "next", "documents that expire within `DURATION`")
	} else {
		f.addIDPrefix(flags)
		flags.BoolVar(&f.held, "held", false, "only held documents")
		flags.BoolVar(&f.deadlines, "deadlines", false, deadlinesUsage)
		flags.StringSliceVar(&f.orderBy, "order-by", nil, "order by `PATH`, or by -PATH for descending; repeatable")
	}
	flags.StringSliceVar(&f.selections, "select", nil, "print only `PATH`; repeatable")
	flags.IntVarP(&f.limit, "limit", "n", 100, "at most `N` documents")
	flags.BoolVar(&f.all, "all", false, "all documents instead of --limit")
	flags.StringVar(&f.cursor, "cursor", "", "continue the same query at `CURSOR`")
	flags.BoolVar(&f.count, "count", false, "print only the number of documents")
	flags.BoolVar(&f.explain, "explain", false, "print the plan and cursor on standard error")
	f.moments.addFlags(flags)
	flags.Uint64Var(&f.minSeq, "min-seq", 0, "wait until the state includes log sequence `SEQ`")
}

// addChoice adds the flags that choose documents by their content.
func (f *queryFlags) addChoice(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.where, "where", "w", nil, "only documents that match this `CEL` expression; repeatable, all of them")
	flags.StringArrayVarP(&f.param, "param", "p", nil, "set params.NAME to VALUE, JSON or else a string, also the empty one: `NAME=VALUE`; repeatable")
	flags.StringVar(&f.params, "params", "", "params as a `JSON` object")
}

func (f *queryFlags) addIDPrefix(flags *pflag.FlagSet) {
	flags.StringVar(&f.idPrefix, "id-prefix", "", "only documents whose id begins with `PREFIX`; reads no others")
}

// deadlinesUsage is the usage of --deadlines, which a document has as a reply and in a query.
const deadlinesUsage = "add the members _deadline, unix seconds or null, _rule, and _hold of a held document"

// options returns the flags as options of the query, or a usage error for those that
// contradict each other. Parameters that the condition does not use are refused here, too:
// the server takes no notice of them.
func (f *queryFlags) options(cmd *cobra.Command) ([]client.QueryOption, error) {
	given := cmd.Flags().Changed
	if f.count {
		for _, name := range []string{"limit", "all", "order-by", "select", "cursor", "deadlines"} {
			if given(name) {
				return nil, usageErrorf("--count and --%s given: a count is of all documents that match --where, leave out --%s", name, name)
			}
		}
	}
	if err := f.moments.check(); err != nil {
		return nil, err
	}
	var opts []client.QueryOption
	params, err := f.parameters(given("params"))
	if err != nil {
		return nil, err
	}
	where, err := f.condition()
	if err != nil {
		return nil, err
	}
	switch unused := unusedParam(where, params); {
	case where != "" && unused != "":
		return nil, usageErrorf("params.%s is given, and --where does not use it: correct its name, or leave it out", unused)
	case where != "":
		opts = append(opts, client.Where(where, params))
	case len(params) > 0:
		return nil, usageErrorf("params given without --where: they are for its expression, as in --where 'doc.total > params.min' --param min=100")
	}
	for _, path := range f.orderBy {
		path, down := strings.CutPrefix(path, "-")
		path, err := pointer("--order-by", path)
		if err != nil {
			return nil, err
		}
		opts = append(opts, client.OrderBy(path, client.Direction(down)))
	}
	for _, path := range f.selections {
		path, err := pointer("--select", path)
		if err != nil {
			return nil, err
		}
		opts = append(opts, client.Select(path))
	}
	switch {
	case f.all && given("limit"):
		return nil, usageErrorf("--all and --limit given: use one of them")
	case f.all:
		opts = append(opts, client.PageSize(client.MaxPageSize))
	case f.limit < 1:
		return nil, usageErrorf("--limit %d: give 1 or more, or --all", f.limit)
	default:
		opts = append(opts, client.Limit(f.limit))
	}
	if f.next > 0 {
		opts = append(opts, client.DueWithin(f.next))
	}
	if f.idPrefix != "" {
		opts = append(opts, client.IDPrefix(f.idPrefix))
	}
	if f.held {
		opts = append(opts, client.Held())
	}
	if f.deadlines {
		opts = append(opts, client.Deadlines())
	}
	if f.minSeq > 0 {
		opts = append(opts, client.MinSeq(f.minSeq))
	}
	// "" is no cursor.
	return append(opts, client.FromCursor(f.cursor)), nil
}

// condition returns the condition that all of --where are, "" for none. Each ends on its
// line, since a comment does:
//
//	--where 'doc.a > 1 // big' --where doc.b   →   (doc.a > 1 // big
//	) && (doc.b
//	)
//
// It is an error if one closes a parenthesis that it does not open: true) || (true would
// change what the others mean.
func (f *queryFlags) condition() (string, error) {
	if len(f.where) < 2 {
		return strings.Join(f.where, ""), nil
	}
	for _, where := range f.where {
		depth := 0
		for _, token := range celToken.FindAllString(where, -1) {
			if token == "(" {
				depth++
			} else if token == ")" {
				depth--
			}
			if depth < 0 {
				return "", usageErrorf("--where %q: it closes a parenthesis that it does not open; each --where is a condition by itself", where)
			}
		}
	}
	return "(" + strings.Join(f.where, "\n) && (") + "\n)", nil
}

// parameters merges --params and every --param; given says whether the former was. A name
// twice is an error, in either flag or across both. A value of --param that is no JSON is a
// string: min=100 is a number, c=C1 a string, and c='"100"' the string 100.
func (f *queryFlags) parameters(given bool) (map[string]json.RawMessage, error) {
	var params map[string]json.RawMessage
	if given {
		if err := json.Unmarshal([]byte(f.params), &params); err != nil || params == nil {
			return nil, usageErrorf(`--params %.80q: give a JSON object like {"min":100}`, f.params)
		}
		// json.Unmarshal keeps the last of two members with one name.
		members := 0
		values.Value(f.params).Members(func([]byte, values.Value) bool { members++; return true })
		if members > len(params) {
			return nil, usageErrorf("--params %q: a member is given twice, and only one would count: leave one out", f.params)
		}
	}
	for _, p := range f.param {
		name, text, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usageErrorf("--param %.80q: use NAME=VALUE, like min=100", p)
		}
		if _, twice := params[name]; twice {
			return nil, usageErrorf("params.%s given twice: use one of them", name)
		}
		value := json.RawMessage(text)
		if !json.Valid(value) {
			value = schema.AppendString(nil, text)
		}
		if params == nil {
			params = map[string]json.RawMessage{}
		}
		params[name] = value
	}
	return params, nil
}

// pointer returns a path, a.b or /a/b, as a JSON pointer (RFC 6901). A ~ in the dotted form
// stands for itself, so it becomes ~0; the other form is a pointer already.
func pointer(flag, path string) (string, error) {
	if strings.HasPrefix(path, "/") {
		return path, nil
	}
	names := strings.Split(path, ".")
	if slices.Contains(names, "") || strings.Contains(path, "/") {
		return "", usageErrorf("%s %q: use paths like total, a.b or /a/b", flag, path)
	}
	return "/" + strings.ReplaceAll(strings.Join(names, "/"), "~", "~0"), nil
}
