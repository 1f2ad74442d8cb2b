package embedded

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A user's file may include others, and names certificates. NATS's parser follows an
// include without looking: a pipe never ends, nor does a file that includes itself, and
// both may happen in the middle of a reload of a server that works. So lapse finds the
// includes first, with the tokens of NATS's syntax, and checks what would be read.
//
// These tokens need not be exact where the parser fails anyway. They must find each include
// that the parser would follow.

const (
	maxFile     = 1 << 20 // bytes of a file that a user names
	maxIncludes = 64      // of a configuration file, each counted as often as it is read
)

// ReadFile returns the content of a file that a user names, or an error if it has more than
// 1 MiB: a device may never end.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = tooLarge(name)
	}
	return text, err
}

// CheckFile returns an error if a library must not read a file that a user names: it is no
// regular file, so that reading it may not end, or it has more than 1 MiB. It ignores a file
// that does not exist: whoever opens it reports that.
func CheckFile(name string) error {
	switch info, err := os.Stat(name); {
	case err != nil:
		return nil
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is a directory, pipe or device: give a regular file", name)
	case info.Size() > maxFile:
		return tooLarge(name)
	}
	return nil
}

func tooLarge(name string) error {
	return fmt.Errorf("%s has more than 1 MiB: give a smaller file", name)
}

// include is an include of a configuration file.
type include struct {
	path string
	line int
}

// The tokens of NATS's syntax, as far as they tell where an include is. A value may contain
// what begins a comment.
const space = `\s\v\x{85}\pZ`

var (
	betweenTokens = regexp.MustCompile(`^(?:[` + space + `;,]|#.*|//.*)*`)
	includeToken  = regexp.MustCompile(`^(?i:include)(?:[ \t]+(?:"([^"]*)"|'([^']*)'|([^\t\n\r ;}']*)'?)|([\f\v\x{85}\pZ][^\t\n\r ;}']*)'?)`)
	keyToken      = regexp.MustCompile(`^(?:"[^"]*"|'[^']*'|[^:=` + space + `]+)[` + space + `]*[:=]?[` + space + `]*`)
	valueToken    = regexp.MustCompile(`^(?:"(?:[^"\\]|\\(?s:.))*"|'[^']*'|\((?s:.*?)\n\)(?:\n|$)|[^\s;,\]}']+'?)`)
)

// includes returns the includes that NATS's parser would follow. After an error of syntax,
// where the parser ends, it may return more.
//
// It steps from token to token: space and comments, then an include or a key, then a value.
// In an array there are no keys, and so no includes, which is why it keeps track of what
// the present position is in.
func includes(text string) (all []include) {
	inArray := []bool{false} // of the values around the present position
	for rest := text; ; {
		rest = rest[len(betweenTokens.FindString(rest)):]
		if !inArray[len(inArray)-1] {
			if found := includeToken.FindStringSubmatch(rest); found != nil {
				line := 1 + strings.Count(text[:len(text)-len(rest)], "\n")
				all = append(all, include{strings.Join(found[1:], ""), line})
				rest = rest[len(found[0]):]
				continue
			}
			if rest != "" && rest[0] != '{' && rest[0] != '}' {
				rest = rest[len(keyToken.FindString(rest)):]
			}
		}
		switch {
		case rest == "":
			return all
		case rest[0] == '{' || rest[0] == '[':
			inArray = append(inArray, rest[0] == '[')
		case rest[0] == '}' || rest[0] == ']':
			inArray = inArray[:max(1, len(inArray)-1)]
		default:
			rest = rest[max(1, len(valueToken.FindString(rest))):]
			continue
		}
		rest = rest[1:]
	}
}

// checkIncludes returns an error if NATS's parser, which follows every include, would not
// end, or would read what is no configuration. above are the files that include the file,
// by identity, since a path may lead to one file in several ways, and count is the number
// of includes so far.
func checkIncludes(file string, above []fs.FileInfo, count *int) error {
	info, err := os.Stat(file)
	text, readErr := ReadFile(file)
	if err != nil || readErr != nil {
		return nil // the parser reports it
	}
	above = append(above, info)
	for _, i := range includes(string(text)) {
		at, path := place{file, i.line}, filepath.Join(filepath.Dir(file), i.path)
		included, err := os.Stat(path)
		*count++
		switch {
		case err == nil && slices.ContainsFunc(above, func(f fs.FileInfo) bool { return os.SameFile(f, included) }):
			return at.errorf("include %s: the file would include itself: remove this line", i.path)
		case *count > maxIncludes:
			return at.errorf("include %s: there are more than %d includes: put their content into fewer files", i.path, maxIncludes)
		}
		if err := CheckFile(path); err != nil {
			return at.errorf("include %v", err)
		}
		if err := checkIncludes(path, above, count); err != nil {
			return err
		}
	}
	return nil
}

// checkFiles returns an error if NATS must not read a file that the configuration names:
// certificates, keys, credentials, at any depth.
func checkFiles(v any, above place) error {
	value, at := unwrap(v, above)
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			if err := checkFiles(v, at); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, v := range inOrder(value) {
			if name, at := unwrap(v, at); slices.Contains([]string{"cert_file", "key_file", "ca_file", "credentials"}, strings.ToLower(key)) {
				if err := CheckFile(fmt.Sprint(name)); err != nil {
					return at.errorf("%s: %v", key, err)
				}
			}
			if err := checkFiles(v, at); err != nil {
				return err
			}
		}
	}
	return nil
}
