package schema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/schema/values"
)

func TestParseProperties(t *testing.T) {
	with := func(change func(*Properties)) Properties {
		p := DefaultProperties()
		change(&p)
		return p
	}
	for _, test := range []struct {
		name, sent string
		want       Properties
	}{
		{"empty body", ``, Properties{DefaultTTL: Off, IndexingMode: Consistent, PreviousImages: true}},
		{"empty object", ` {} `, DefaultProperties()},
		{"everything null", `{"defaultTtl":null,"indexingPolicy":null,"previousImages":null}`, DefaultProperties()},
		{"everything null in the policy", `{"indexingPolicy":{"indexingMode":null,"includedPaths":null}}`, DefaultProperties()},
		{"defaultTtl", `{"defaultTtl":3600}`, with(func(p *Properties) { p.DefaultTTL = 3600 })},
		{"defaultTtl -1", `{"defaultTtl":-1}`, with(func(p *Properties) { p.DefaultTTL = NoDefault })},
		{"escaped name", `{"default\u0054tl":5}`, with(func(p *Properties) { p.DefaultTTL = 5 })},
		{"empty policy", `{"indexingPolicy":{}}`, DefaultProperties()},
		{"consistent", `{"indexingPolicy":{"indexingMode":"consistent"}}`, DefaultProperties()},
		{"lazy", `{"indexingPolicy":{"indexingMode":"lazy"}}`, with(func(p *Properties) { p.IndexingMode = Lazy })},
		{"none", `{"indexingPolicy":{"indexingMode":"none"}}`, with(func(p *Properties) { p.IndexingMode = None })},
		{"none and TTL off", `{"defaultTtl":null,"indexingPolicy":{"indexingMode":"none"}}`, with(func(p *Properties) { p.IndexingMode = None })},
		{"lazy and TTL", `{"defaultTtl":5,"indexingPolicy":{"indexingMode":"lazy"}}`, with(func(p *Properties) { p.DefaultTTL, p.IndexingMode = 5, Lazy })},
		{"no path", `{"indexingPolicy":{"includedPaths":[]}}`, DefaultProperties()},
		{"paths in order", `{"indexingPolicy": {"includedPaths": [ {"path": "/b/0"} , {"path":"/a~0~1\u00e9"} ]}}`,
			with(func(p *Properties) { p.IncludedPaths = []string{"/b/0", "/a~0~1é"} })},
		{"longest path", `{"indexingPolicy":{"includedPaths":[{"path":"/` + strings.Repeat("a", 254) + `"}]}}`,
			with(func(p *Properties) { p.IncludedPaths = []string{"/" + strings.Repeat("a", 254)} })},
		{"previousImages false", `{"previousImages":false}`, with(func(p *Properties) { p.PreviousImages = false })},
		{"previousImages true", `{"previousImages":true}`, DefaultProperties()},
		{"warnBefore", `{"warnBefore":600.0}`, with(func(p *Properties) { p.WarnBefore = 600 })},
		{"warnBefore null", `{"warnBefore":null}`, DefaultProperties()},
		{"metadata", `{"metadata":{"owner":"shop","":"","\u00e9":"a\nb"}}`, with(func(p *Properties) { p.Metadata = map[string]string{"owner": "shop", "": "", "é": "a\nb"} })},
		{"metadata null", `{"metadata":null}`, DefaultProperties()},
		{"metadata empty", `{"metadata":{ }}`, DefaultProperties()},
		{"the most metadata", `{"metadata":{"é":"` + strings.Repeat("v", MaxMetadataBytes-2) + `"}}`, with(func(p *Properties) {
			p.Metadata = map[string]string{"é": strings.Repeat("v", MaxMetadataBytes-2)}
		})},
		{"a reply sent back", `{"id":"orders","defaultTtl":5,"_ts":1,"_etag":"7","_rid":"","_self":"","documents":3,"bytes":4}`, with(func(p *Properties) { p.DefaultTTL = 5 })},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, fault := ParseProperties("orders", []byte(test.sent))
			if fault != nil || !reflect.DeepEqual(got, test.want) {
				t.Fatalf("got %+v, %v, want %+v", got, fault, test.want)
			}
		})
	}
}

func TestParsePropertiesRefuses(t *testing.T) {
	paths := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"path":"/p%d"}`, i))
		}
		return `{"indexingPolicy":{"includedPaths":[` + strings.Join(list, ",") + `]}}`
	}
	if _, fault := ParseProperties("orders", []byte(paths(MaxIncludedPaths))); fault != nil {
		t.Fatalf("%d paths: %v", MaxIncludedPaths, fault)
	}
	for _, test := range []struct {
		name, sent string
		want       *Error
		says       string
	}{
		// The illegal spellings of defaultTtl are in ttl_test.go.
		{"defaultTtl 0", `{"defaultTtl":0}`, ErrBadTTL, "defaultTtl 0"},
		{"defaultTtl twice", `{"defaultTtl":5,"defaultTtl":null}`, ErrBadRequest, "twice"},
		{"defaultTtl twice, once escaped", `{"defaultTtl":5,"\u0064efaultTtl":null}`, ErrBadRequest, "twice"},
		{"a misspelt name", `{"defaultTTL":5}`, ErrBadRequest, `"defaultTTL"`},
		{"an unknown name", `{"partitionKey":"/a"}`, ErrBadRequest, `"partitionKey"`},
		{"an endless unknown name", `{"` + strings.Repeat("x", 1<<20) + `":1}`, ErrBadRequest, "unknown"},
		{"another id", `{"id":"other"}`, ErrBadRequest, `"other"`},
		{"id null", `{"id":null}`, ErrBadRequest, "null"},
		{"previousImages a string", `{"previousImages":"true"}`, ErrBadRequest, "previousImages"},
		{"previousImages a number", `{"previousImages":1}`, ErrBadRequest, "previousImages"},
		{"warnBefore 0", `{"warnBefore":0}`, ErrBadTTL, "from 1 to 2147483647"},
		{"warnBefore -1", `{"warnBefore":-1}`, ErrBadTTL, "warnBefore -1"},
		{"warnBefore too long", `{"warnBefore":2147483648}`, ErrBadTTL, "warnBefore"},
		{"warnBefore a string", `{"warnBefore":"5"}`, ErrBadTTL, "warnBefore"},
		{"warnBefore false", `{"warnBefore":false}`, ErrBadTTL, "warnBefore"},
		{"warnBefore twice", `{"warnBefore":5,"warnBefore":5}`, ErrBadRequest, "twice"},
		{"metadata a list", `{"metadata":["a"]}`, ErrBadRequest, `metadata ["a"]: use an object of strings`},
		{"metadata a string", `{"metadata":"a"}`, ErrBadRequest, "use an object of strings"},
		{"metadata with a number", `{"metadata":{"a":"b","owner":5}}`, ErrBadRequest, `metadata "owner" 5: use a string`},
		{"metadata with null", `{"metadata":{"owner":null}}`, ErrBadRequest, "null: use a string"},
		{"metadata with an object", `{"metadata":{"cosmos":{"a":"b"}}}`, ErrBadRequest, `metadata "cosmos" {"a":"b"}: use a string`},
		{"metadata with half a surrogate pair", `{"metadata":{"a":"\ud800"}}`, ErrBadRequest, "half a surrogate pair"},
		{"a name of half a surrogate pair", `{"metadata":{"\ud800":"a"}}`, ErrBadRequest, "half a surrogate pair"},
		{"a name of metadata twice", `{"metadata":{"a":"","\u0061":""}}`, ErrBadRequest, `"a" twice`},
		{"metadata twice", `{"metadata":{"a":""},"metadata":null}`, ErrBadRequest, "twice"},
		{"too much metadata", `{"metadata":{"é":"` + strings.Repeat("v", MaxMetadataBytes-1) + `"}}`, ErrTooLarge, "16384 bytes"},
		{"too many names", `{"metadata":{"` + strings.Repeat("n", MaxMetadataBytes) + `":"","a":""}}`, ErrTooLarge, "16384 bytes"},
		{"an endless name of metadata", `{"metadata":{"` + strings.Repeat("x", 1<<20) + `":1}}`, ErrBadRequest, "use a string"},
		{"policy a list", `{"indexingPolicy":[]}`, ErrBadRequest, "indexingPolicy"},
		{"policy a string", `{"indexingPolicy":"none"}`, ErrBadRequest, "indexingPolicy"},
		{"an unknown name in the policy", `{"indexingPolicy":{"excludedPaths":[]}}`, ErrBadRequest, `"excludedPaths"`},
		{"a name of the policy in other case", `{"indexingPolicy":{"IndexingMode":"none"}}`, ErrBadRequest, `"IndexingMode"`},
		{"indexingMode twice", `{"indexingPolicy":{"indexingMode":"lazy","indexingMode":"none"}}`, ErrBadRequest, "twice"},
		{"indexingMode unknown", `{"indexingPolicy":{"indexingMode":"eager"}}`, ErrBadRequest, `"eager"`},
		{"indexingMode in other case", `{"indexingPolicy":{"indexingMode":"None"}}`, ErrBadRequest, `"None"`},
		{"indexingMode a number", `{"indexingPolicy":{"indexingMode":1}}`, ErrBadRequest, "indexingMode 1"},
		{"paths an object", `{"indexingPolicy":{"includedPaths":{"path":"/a"}}}`, ErrBadRequest, "includedPaths"},
		{"paths of strings", `{"indexingPolicy":{"includedPaths":["/a"]}}`, ErrBadRequest, "includedPaths"},
		{"a path null", `{"indexingPolicy":{"includedPaths":[null]}}`, ErrBadRequest, "includedPaths"},
		{"a path without path", `{"indexingPolicy":{"includedPaths":[{}]}}`, ErrBadRequest, "JSON pointer"},
		{"a path with more", `{"indexingPolicy":{"includedPaths":[{"path":"/a","kind":"Hash"}]}}`, ErrBadRequest, "use path"},
		{"a path in other case", `{"indexingPolicy":{"includedPaths":[{"Path":"/a"}]}}`, ErrBadRequest, "use path"},
		{"a path a number", `{"indexingPolicy":{"includedPaths":[{"path":1}]}}`, ErrBadRequest, "path 1: use a string"},
		{"the empty pointer", `{"indexingPolicy":{"includedPaths":[{"path":""}]}}`, ErrBadRequest, "JSON pointer"},
		{"a path without slash", `{"indexingPolicy":{"includedPaths":[{"path":"a/b"}]}}`, ErrBadRequest, "JSON pointer"},
		{"a tilde at the end", `{"indexingPolicy":{"includedPaths":[{"path":"/a~"}]}}`, ErrBadRequest, "JSON pointer"},
		{"a tilde before neither 0 nor 1", `{"indexingPolicy":{"includedPaths":[{"path":"/a~2"}]}}`, ErrBadRequest, "JSON pointer"},
		{"a path of 256 bytes", `{"indexingPolicy":{"includedPaths":[{"path":"/` + strings.Repeat("a", 255) + `"}]}}`, ErrBadRequest, "255 bytes"},
		{"a path twice", `{"indexingPolicy":{"includedPaths":[{"path":"/a"},{"path":"/\u0061"}]}}`, ErrBadRequest, "twice"},
		{"a path of all", `{"indexingPolicy":{"includedPaths":[{"path":"/*"}]}}`, ErrBadRequest, `path "/*": name a member`},
		{"a path of the root", `{"indexingPolicy":{"includedPaths":[{"path":"/?"}]}}`, ErrBadRequest, `path "/?": name a member`},
		{"a path of all below", `{"indexingPolicy":{"includedPaths":[{"path":"/a/*"}]}}`, ErrBadRequest, "name a member"},
		{"a path with ? inside", `{"indexingPolicy":{"includedPaths":[{"path":"/a/?/b"}]}}`, ErrBadRequest, "name a member"},
		{"a path of elements", `{"indexingPolicy":{"includedPaths":[{"path":"/tags/[]/?"}]}}`, ErrBadRequest, "end the path before []"},
		{"a path of members of elements", `{"indexingPolicy":{"includedPaths":[{"path":"/lines/[]/sku/?"}]}}`, ErrBadRequest, "end the path before []"},
		{"a quoted path", `{"indexingPolicy":{"includedPaths":[{"path":"/\"a b\"/?"}]}}`, ErrBadRequest, "without quotes"},
		{"a quoted path with a slash", `{"indexingPolicy":{"includedPaths":[{"path":"/a/\"b/c\""}]}}`, ErrBadRequest, "without quotes"},
		{"a path twice, once in the form of Cosmos DB", `{"indexingPolicy":{"includedPaths":[{"path":"/a"},{"path":"/a/?"}]}}`, ErrBadRequest, `"/a" twice`},
		{"65 paths", paths(MaxIncludedPaths + 1), ErrBadRequest, "65"},
		{"TTL and none", `{"defaultTtl":5,"indexingPolicy":{"indexingMode":"none"}}`, ErrBadRequest, "indexingMode"},
		{"none and TTL -1", `{"indexingPolicy":{"indexingMode":"none"},"defaultTtl":-1}`, ErrBadRequest, "indexingMode"},
		{"null", `null`, ErrBadRequest, "object"},
		{"a list", `[]`, ErrBadRequest, "object"},
		{"half an object", `{"defaultTtl":5`, ErrBadRequest, "ends early"},
		{"not UTF-8", "{\"\xff\":1}", ErrBadRequest, "UTF-8"},
		{"too much", `{"id":"orders"` + strings.Repeat(" ", MaxDocumentBytes) + `}`, ErrTooLarge, "bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, fault := ParseProperties("orders", []byte(test.sent))
			if !errors.Is(fault, test.want) {
				t.Fatalf("got %+v, %v, want %s", got, fault, test.want.Name)
			}
			if !strings.Contains(fault.Message, test.says) || len(fault.Message) > 400 {
				t.Fatalf("the message is %.500q", fault.Message)
			}
		})
	}
}

// TestPathsOfCosmos: /a/? is /a in what clients send. In the log, which earlier versions
// wrote, paths are as they are.
func TestPathsOfCosmos(t *testing.T) {
	text := []byte(`{"indexingPolicy":{"includedPaths":[{"path":"/a/?"},{"path":"/b?/c*/d[]/?"},{"path":"/e"}]}}`)
	if p, fault := ParseProperties("orders", text); fault != nil || !slices.Equal(p.IncludedPaths, []string{"/a", "/b?/c*/d[]", "/e"}) {
		t.Errorf("sent: %v, %v", p.IncludedPaths, fault)
	}
	text = []byte(`{"indexingPolicy":{"includedPaths":[{"path":"/a/?"},{"path":"/a"},{"path":"/*"},{"path":"/\"a b\"/?"}]}}`)
	if p, fault := ReadProperties("orders", text); fault != nil || !slices.Equal(p.IncludedPaths, []string{"/a/?", "/a", "/*", `/"a b"/?`}) {
		t.Errorf("in the log: %v, %v", p.IncludedPaths, fault)
	}
}

// TestParsePropertiesFaultIsDeterministic: of two faults the first is reported. The
// message of a refused mutation is in the log, and the same input must give the same log.
func TestParsePropertiesFaultIsDeterministic(t *testing.T) {
	sent := []byte(`{"indexingPolicy":{"a":1,"includedPaths":5,"indexingMode":5,"b":1}}`)
	for range 50 {
		if _, fault := ParseProperties("orders", sent); !strings.Contains(fault.Message, `"a"`) {
			t.Fatal(fault)
		}
	}
}

func anyProperties() *rapid.Generator[Properties] {
	return rapid.Custom(func(t *rapid.T) Properties {
		p := Properties{
			IndexingMode:   rapid.SampledFrom([]IndexingMode{Consistent, Lazy, None}).Draw(t, "mode"),
			PreviousImages: rapid.Bool().Draw(t, "previousImages"),
			WarnBefore:     rapid.Int32Range(0, MaxTTL).Draw(t, "warnBefore"),
			Metadata:       rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "metadata"),
		}
		if len(p.Metadata) == 0 {
			p.Metadata = nil
		}
		if p.IndexingMode != None {
			p.DefaultTTL = DefaultTTL(rapid.Int32Range(-1, MaxTTL).Draw(t, "defaultTtl"))
		}
		path := rapid.Map(rapid.StringN(1, 50, 250), func(s string) string {
			return "/" + strings.ReplaceAll(s, "~", "~0")
		}).Filter(func(s string) bool {
			_, err := values.ParsePointer(s)
			return err == nil
		})
		if paths := rapid.SliceOfNDistinct(path, 0, 5, rapid.ID).Draw(t, "paths"); len(paths) > 0 {
			p.IncludedPaths = paths
		}
		return p
	})
}

// TestPropertiesAreReadBack: the properties in a reply or event are the collection's.
func TestPropertiesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Collection{
			Name:       "orders",
			Version:    Version(rapid.Uint64().Draw(t, "version")),
			Time:       rapid.Int64Min(0).Draw(t, "time"),
			Properties: anyProperties().Draw(t, "properties"),
		}
		for _, text := range [][]byte{c.AppendJSON(nil), c.AppendReply(nil), c.AppendReplyWithSize(nil, 3, 400, 1)} {
			back, fault := ReadProperties(c.Name, text)
			if fault != nil || !reflect.DeepEqual(back, c.Properties) {
				t.Fatalf("%s is read as %+v, %v", text, back, fault)
			}
		}
	})
}

func TestCollectionJSON(t *testing.T) {
	c := Collection{Name: "orders", Version: 7, Time: 12_999, Properties: Properties{
		DefaultTTL: 3600, IndexingMode: Lazy, IncludedPaths: []string{"/customerId", `/a"b`}, WarnBefore: 600,
		Metadata: map[string]string{"owner": "shop", "a": "<\"é\x01", "b": ""},
	}}
	const fields = `"defaultTtl":3600,"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/customerId"},{"path":"/a\"b"}]},"previousImages":false,"warnBefore":600,"metadata":{"a":"<\"é\u0001","b":"","owner":"shop"}`
	for _, test := range []struct{ name, got, want string }{
		{"properties", string(c.AppendJSON(nil)), `{` + fields + `}`},
		{"reply", string(c.AppendReply(nil)), `{"id":"orders",` + fields + `,"_ts":12,"_etag":"7"}`},
		{"reply with size", string(c.AppendReplyWithSize(nil, 3, 400, 1)), `{"id":"orders",` + fields + `,"documents":3,"bytes":400,"held":1,"_ts":12,"_etag":"7"}`},
	} {
		if test.got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, test.got, test.want)
		}
	}
	p := DefaultProperties()
	if got, want := string(p.AppendJSON(nil)), `{"defaultTtl":null,"indexingPolicy":{"indexingMode":"consistent","includedPaths":[]},"previousImages":true}`; got != want {
		t.Errorf("defaults:\n got %s\nwant %s", got, want)
	}
}

func FuzzParseProperties(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"defaultTtl":5}`, `{"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/a"}]},"previousImages":false}`, `{"id":"c","_ts":1}`, `{"metadata":{"b":"1","a":"\u00e9"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		p, fault := ParseProperties("c", sent)
		if fault != nil {
			return
		}
		text := p.AppendJSON(nil)
		back, fault := ParseProperties("c", text)
		if fault != nil || string(back.AppendJSON(nil)) != string(text) {
			t.Fatalf("%q is written as %s and read back as %+v, %v", sent, text, back, fault)
		}
	})
}
