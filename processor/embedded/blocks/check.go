package blocks

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
)

// Whether a stream is sound follows from its files as a whole. Each file is summarized by
// itself (file.go), in parallel and from a cache; order then walks the summaries in
// sequence:
//
//	1.blk  1 ── 40          2.blk  41 ── 75   tombstone 60     3.blk  76 ── 80 torn
//	       all there               60 is explained                    a kill
//
// What explains a missing sequence: a tombstone (NATS removed it), a LogTrimmed event
// (retention noted it), a first sequence in the configuration (the log continues another),
// or a WriterStarted that records a lost end. Anything else is damage.
//
// What a kill or a power cut leaves is the end of the last file: a record cut short, or
// sectors of zeros. The same in the middle, or a record that is complete and wrong, is
// damage: no write of NATS ends like that.

// Stream is what the files of a stream hold. The caller may read it, and change the stream
// by Skip alone.
type Stream struct {
	Name    string
	Subject string // the first one that it listens on
	// Last is the last used sequence: that of a message, of a tombstone, or the one
	// before the first of a stream that began later.
	Last    uint64
	Indexed uint64 // the last sequence when index.db was written, 0 if unknown
	Judged  uint64 // the last mutation that has an event
	Torn    string // the file that ends in a record cut short, "" for none

	File string // path of the last one

	dir  string // of its messages
	next uint32 // number of a new file
}

// Damage is an error that neither a kill, nor a power cut, nor retention leaves. Its text
// names the file and what is wrong there, for an operator who has copies.
type Damage struct {
	File, What string
	// End says that the damage is in the last file, beyond sequence After: all
	// before it is sound. Last is the last sequence known to have been there.
	End         bool
	After, Last uint64
}

func (d *Damage) Error() string { return fmt.Sprintf("%s: %s", d.File, d.What) }

// check is the check of one stream.
type check struct {
	dir, stream, events string
	config              config
	files               []*summary
}

// config has the fields of a stream's meta.inf that matter here.
type config struct {
	Subjects    []string `json:"subjects"`
	FirstSeq    uint64   `json:"first_seq"`
	Compression string   `json:"compression"`
}

// Check reads the files of the stream in dir. events is the prefix of the subjects of a
// log's events, "" for a stream that is no log. With a *Damage it also returns what is
// sound. known, which may be nil, caches what was found before. No server may use the
// files.
//
// It reads each file once, whole, into memory: files have 8 MiB.
func Check(dir, events string, known *Known) (*Stream, error) {
	c := &check{dir: messages(dir), stream: filepath.Base(dir), events: events}
	s := &Stream{Name: c.stream, File: c.dir, dir: c.dir, next: 1}
	if err := c.read(known); err != nil {
		return nil, err
	}
	for _, f := range c.files {
		s.File, s.next = c.path(f.Index), f.Index+1
		s.Judged = max(s.Judged, f.Judged)
	}
	err := c.meta(dir)
	if err == nil {
		err = c.order(s)
	}
	if len(c.config.Subjects) > 0 {
		s.Subject = c.config.Subjects[0]
	}
	return s, err
}

// messages returns the directory of a stream's messages. After a kill during a purge of
// all of them it is the new directory, with which the server completes the purge.
func messages(dir string) string {
	purged := filepath.Join(dir, "__new_msgs__")
	if found, _ := fs.Glob(os.DirFS(purged), "*.blk"); len(found) > 0 {
		return purged
	}
	return filepath.Join(dir, "msgs")
}

// indexes returns the numbers of the files in their order.
func (c *check) indexes() (all []uint32, err error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if index, ok := indexOf(e.Name()); ok {
			all = append(all, index)
		}
	}
	slices.Sort(all)
	return all, nil
}

// read reads all files, GOMAXPROCS at a time. The slots bound memory: each holds a file.
func (c *check) read(known *Known) error {
	indexes, err := c.indexes()
	if err != nil {
		return err
	}
	c.files = make([]*summary, len(indexes))
	faults := make([]error, len(indexes))
	var reading sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, index := range indexes {
		slots <- struct{}{}
		reading.Go(func() {
			defer func() { <-slots }()
			c.files[i], faults[i] = known.summary(c, fileName(index), index)
		})
	}
	reading.Wait()
	return errors.Join(faults...)
}

// meta reads the stream's configuration. The server ignores a stream whose configuration it
// cannot read, as if there were none: its messages would be lost with the next one made
// under that name. Encrypted or compressed files are refused, since they cannot be checked.
func (c *check) meta(dir string) error {
	name := filepath.Join(dir, "meta.inf")
	text, err := os.ReadFile(name)
	sum, sumErr := os.ReadFile(filepath.Join(dir, "meta.sum"))
	h := newHash(c.stream)
	_, _ = h.Write(text)
	if err != nil || sumErr != nil || hex.EncodeToString(h.Sum(nil)) != string(sum) || json.Unmarshal(text, &c.config) != nil {
		if !slices.ContainsFunc(c.files, func(s *summary) bool { return s.First > 0 || s.bad >= 0 }) {
			return nil // it was being created
		}
		return &Damage{File: name, What: "it or meta.sum is damaged"}
	}
	if _, err := os.Stat(filepath.Join(dir, "meta.key")); err == nil || c.config.Compression != "" && c.config.Compression != "none" {
		return fmt.Errorf("%s: the stream is encrypted or compressed, and lapse cannot check its files: remove that from its configuration", name)
	}
	return nil
}

// path returns the path of a file of messages.
func (c *check) path(index uint32) string { return filepath.Join(c.dir, fileName(index)) }

// order finds damaged records and missing sequences, and fills in s. It returns the first
// damage, in the order of the sequences.
func (c *check) order(s *Stream) error {
	indexed, messages := indexed(c.dir, c.stream)
	s.Indexed = indexed
	isLog := c.events != ""
	begin := max(1, c.config.FirstSeq)
	s.Last = begin - 1
	var removed []span
	for _, f := range c.files {
		begin = max(begin, f.Trimmed)
		removed = append(removed, f.Removed...)
	}
	if removed = merge(removed); len(removed) > 0 {
		s.Last = max(s.Last, removed[len(removed)-1].Last)
	}
	last := uint64(0) // last message read
	for i, f := range c.files {
		gaps := f.Gaps
		switch {
		case f.First == 0:
		case last == 0 && isLog && f.First > begin:
			gaps = append([]span{{begin, f.First - 1}}, gaps...)
		case last > 0 && f.First > last+1 && (f.Lost == 0 || f.Lost > last+1):
			gaps = append([]span{{last + 1, f.First - 1}}, gaps...)
		}
		for _, gap := range gaps {
			// In a gap of mutations the server marks only the last one.
			if gap.Last < begin || covered(removed, gap) || !isLog && covered(removed, span{gap.Last, gap.Last}) {
				continue
			}
			return c.missing(i, gap, last)
		}
		last = max(last, f.Last)
		s.Last = max(s.Last, f.Last)
		if damage := c.corrupt(i, last); damage != nil {
			return damage
		} else if f.bad >= 0 {
			s.Torn = c.path(f.Index)
		}
	}
	if last == 0 && len(removed) == 0 && indexed > s.Last && messages > 0 {
		return &Damage{File: s.File, Last: indexed, What: fmt.Sprintf(
			"it is empty, and held messages up to %d when the server stopped", indexed)}
	}
	return nil
}

// missing returns the damage of a gap before or in file i; last is the last message before
// that file. The text says what an operator can look for: a file that is missing, a
// beginning, or messages within a file.
func (c *check) missing(i int, gap span, last uint64) *Damage {
	f := c.files[i]
	file, what := f.Index, "messages %d to %d, before those in this file, are missing"
	switch {
	case i > 0 && gap.Last < f.First && c.files[i-1].Index+1 < f.Index:
		file, what = f.Index-1, "messages %d to %d are missing, and so is this file"
	case last == 0 && gap.Last < f.First:
		what = "the log has lost its beginning: events %d to %d are missing, and no retention has trimmed them"
	case gap.Last > f.First:
		what = "messages %d to %d, between those in this file, are missing"
	}
	return &Damage{File: c.path(file), Last: f.Last, What: fmt.Sprintf(what, gap.First, gap.Last)}
}

// corrupt returns the damage of a corrupt record in file i, nil if there is none, or if it is
// the end of what was being written; last is the last message up to it.
func (c *check) corrupt(i int, last uint64) error {
	f := c.files[i]
	later := slices.ContainsFunc(c.files[i+1:], func(f *summary) bool { return f.Records > 0 || f.sound })
	what := "corrupt record at byte %d after message %d"
	switch {
	case f.bad < 0, f.torn && !f.sound && !later:
		return nil
	case f.sound || later:
		what += "; valid records follow"
	}
	return &Damage{File: c.path(f.Index), What: fmt.Sprintf(what, f.bad, last), End: !later && last > 0, After: last, Last: max(f.later, last+1)}
}

// merge sorts spans and joins those that touch.
func merge(spans []span) (merged []span) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.First, b.First) })
	for _, s := range spans {
		if n := len(merged); n > 0 && s.First <= merged[n-1].Last+1 {
			merged[n-1].Last = max(merged[n-1].Last, s.Last)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// covered reports whether merged spans contain all of wanted. O(log n): a log that was trimmed
// message by message has many.
func covered(merged []span, wanted span) bool {
	i, _ := slices.BinarySearchFunc(merged, wanted.First, func(s span, seq uint64) int { return cmp.Compare(s.Last, seq) })
	return i < len(merged) && merged[i].First <= wanted.First && wanted.Last <= merged[i].Last
}
