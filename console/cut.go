package console

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// bodies returns the size of the longest body that a request asks for, -1 for no limit.
func bodies(query url.Values) (int, error) {
	text := query.Get("bodies")
	if text == "" {
		return -1, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, client.ErrBadRequest.With("bodies=%.40q: use a number of bytes", text)
	}
	return int(n), nil
}

// kept are the members that a cut document keeps.
var kept = []string{"id", "ttl", "_ts", "_etag", "_deadline", "_rule", "_hold"}

// cutDocuments returns the reply to a query with no document longer than longest bytes: a
// longer one keeps the members that identify it. The member cut has its size and beginning,
// by its index. A table of documents shows the beginning of each; without the cut a page
// of large ones would be many megabytes. With longest 20:
//
//	{"documents":[{"id":"a","_ts":1,"_etag":"7"}],"cut":{"0":{"bytes":5120,"text":"{\"id\":\"a\",\"text\":\"xx"}}}
func cutDocuments(reply []byte, longest int) []byte {
	documents := values.Value(reply).At([]string{"documents"})
	if documents == nil {
		return reply // a count
	}
	out, cut, i := []byte(`{"documents":[`), []byte(nil), 0
	documents.Elements(func(document values.Value) bool {
		if i > 0 {
			out = append(out, ',')
		}
		if len(document) > longest {
			cut = fmt.Appendf(cut, `,"%d":{"bytes":%d,"text":`, i, len(document))
			cut = append(schema.AppendString(cut, strings.ToValidUTF8(string(document[:longest]), "")), '}')
			members := appendMembers(nil, document, func(name string) bool { return slices.Contains(kept, name) })
			document = append(append([]byte{'{'}, members[1:]...), '}')
		}
		out = append(out, document...)
		i++
		return true
	})
	out = append(out, ']')
	if cut != nil {
		out = append(append(append(out, `,"cut":{`...), cut[1:]...), '}')
	}
	return append(appendMembers(out, reply, func(name string) bool { return name != "documents" }), '}')
}

// appendMembers appends members of an object to those of another one, each with a comma
// before it.
func appendMembers(out []byte, object values.Value, keep func(name string) bool) []byte {
	object.Members(func(name []byte, value values.Value) bool {
		if keep(string(name)) {
			out = append(append(schema.AppendString(append(out, ','), string(name)), ':'), value...)
		}
		return true
	})
	return out
}
