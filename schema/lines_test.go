package schema

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// TestReadEvents: a faulty line is named, the lines before and after it are read, however
// the file is cut into reads, and the error of a read comes last.
func TestReadEvents(t *testing.T) {
	const created = `{"seq":2,"time":"2015-05-17T10:05:00.000Z","type":"CollectionCreated","collection":"orders","body":{}}`
	const foreign = `{"seq":3,"time":"2015-05-17T10:05:00.000Z","type":"Renamed","collection":"orders"}`
	text := "\n" + created + "\r\n \n" + foreign + "\npoison\n" + created + "\n"
	long := strings.Repeat(" ", MaxLineBytes)
	broken := errors.New("the disk fails")
	for name, in := range map[string]io.Reader{
		"whole":    strings.NewReader(text + long + "\n" + created),
		"bytewise": io.MultiReader(iotest.OneByteReader(strings.NewReader(text)), strings.NewReader(long+"\n"+created)),
		"broken":   io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)),
	} {
		var results []string // what the loop sees
		var last error
		bytes := 0
		for line, err := range ReadEvents(t.Context(), in) {
			if last = err; err == nil {
				results = append(results, "event")
			} else {
				results = append(results, err.Error())
			}
			if bytes += line.Bytes; (line.Event != nil) != (err == nil) || line.Event == nil && line.Seq != 0 && line.Seq != 3 {
				t.Errorf("%s: %+v, %v", name, line, err)
			}
		}
		want := "event\nline 4 is no event: event 3: unknown type \"Renamed\": give the output of `lapse export`\n" +
			"line 5 is no event: byte 0: 'p' found, an object expected: give the output of `lapse export`\nevent\n"
		size := len(text)
		if name == "broken" {
			want += broken.Error()
		} else {
			want += "line 7 is longer than 16777216 bytes: a document has at most 2097152\nevent"
			size += len(long + "\n" + created)
		}
		if got := strings.Join(results, "\n"); got != want || bytes != size || errors.Is(last, broken) != (name == "broken") {
			t.Errorf("%s: %d of %d bytes, got\n%s\nwant\n%s", name, bytes, size, got, want)
		}
	}
}

// TestReadMutationsBeforeMore: lines are yielded although a read waits for more, and a
// done context ends the loop then.
func TestReadMutationsBeforeMore(t *testing.T) {
	in, more := io.Pipe()
	defer in.Close()
	go func() {
		_, _ = io.WriteString(more, `{"at":"2015-05-17T10:05:03Z","op":"document.delete","collection":"c","id":"a"}`+"\npart")
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	for line, err := range ReadMutations(ctx, in) {
		if seen++; seen == 1 && (err != nil || !line.Mutation.Recorded || line.At.UnixMilli() != 1431857103000) || seen == 2 && !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", line, err)
		}
		cancel()
	}
	if seen != 2 {
		t.Errorf("%d lines and errors, want 2", seen)
	}
}

// TestFileKinds: a byte order mark is no part of the first line, and a file that has no lines
// of JSON is refused once, not line by line.
func TestFileKinds(t *testing.T) {
	const line = `{"seq":2,"time":"2015-05-17T10:05:00.000Z","type":"CollectionCreated","collection":"orders","body":{}}`
	for file, want := range map[string]string{
		line:                                    "1",
		ByteOrderMark + line + "\n" + line:      "1\n2",
		ByteOrderMark:                           "",
		ByteOrderMark + "\n" + line:             "2",
		"":                                      "",
		"\n":                                    "",
		"\x1F\x8B\x08\x00\n\n\n":                "the file is compressed by gzip: ",
		"\x28\xB5\x2F\xFD\n\n":                  "the file is compressed by zstd: ",
		"\xFD7zXZ\x00\n\n":                      "the file is compressed by xz: ",
		"BZh91AY\n":                             "the file is compressed by bzip2: ",
		"PK\x03\x04\n":                          "the file is a zip archive: ",
		"\xFF\xFE{\x00\n\x00}\x00":              "the file is in UTF-16: ",
		"\xFE\xFF\x00{\x00\n\x00}":              "the file is in UTF-16: ",
		"{\x00\"\x00\n\x00":                     "the file is in UTF-16: ",
		"\x00[\x00\n":                           "the file is in UTF-16: ",
		"[\n" + line + ",\n" + line + "\n]":     "the file is a JSON array: ",
		ByteOrderMark + "\n[{},\n{}]":           "the file is a JSON array: ",
		"[" + strings.Repeat(" ", MaxLineBytes): "the file is a JSON array: ",
	} {
		for _, in := range []io.Reader{strings.NewReader(file), iotest.OneByteReader(strings.NewReader(file))} {
			var got []string
			size := 0
			for l, err := range ReadEvents(t.Context(), in) {
				if size += l.Bytes; err == nil {
					got = append(got, strconv.Itoa(l.Number))
				} else if errors.As(err, new(FileError)) {
					got = append(got, strings.SplitAfter(err.Error(), ": ")[0])
				} else {
					t.Errorf("%.20q: %v", file, err)
				}
			}
			if s := strings.Join(got, "\n"); s != want || want != "" && !strings.HasPrefix(want, "the") && size != len(file) {
				t.Errorf("%.20q: %q, %d of %d bytes", file, s, size, len(file))
			}
		}
	}
}

// TestReadLinesPause: a pause comes a tenth of a second after the first of the lines that
// wait, also if they trickle, once, and not while lines are ready.
func TestReadLinesPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, more := io.Pipe()
		go func() {
			_, _ = io.WriteString(more, "a\nb\n")
			time.Sleep(time.Second)
			for range 5 {
				_, _ = io.WriteString(more, "c\n")
				time.Sleep(40 * time.Millisecond)
			}
			more.Close()
		}()
		began := time.Now()
		var got []string
		for line, err := range ReadLines(t.Context(), in) {
			if errors.Is(err, ErrPause) {
				got = append(got, fmt.Sprintf("pause at %v", time.Since(began)))
			} else if got = append(got, string(line.Text)); err != nil {
				t.Error(err)
			}
		}
		want := "[a b pause at 100ms c c c pause at 1.1s c c]"
		if text := fmt.Sprint(got); text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	})
}
