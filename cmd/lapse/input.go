package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// Standard input is read for "-", and by a command that needs a body and was given none.
// No other command reads it: it may be the list that a loop of the shell reads.

// inputOffered reports whether the caller seems to offer a body on standard input, which is
// then neither a terminal nor the null device. It reads nothing. A command that does not
// read it can say so instead of ignoring a body.
func (a *app) inputOffered() bool {
	file, ok := a.stdin.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// readArgument returns a JSON argument, or standard input for "-", which must not be empty:
// an empty body may be legal, and mean something else than the one that is missing. The
// server validates the rest.
func (a *app) readArgument(arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	// Far above the server's limit, and far below the memory of a machine.
	body, err := io.ReadAll(io.LimitReader(a.stdin, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	body = bytes.TrimPrefix(body, []byte(schema.ByteOrderMark))
	if len(body) == 0 {
		return nil, usageErrorf("standard input is empty: give JSON, '{}' for an object without members")
	}
	return body, nil
}

// openInput opens a file, or standard input for "-". size is in bytes, -1 if unknown.
func (a *app) openInput(name string) (in io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(a.stdin), -1, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, -1, fmt.Errorf("%w: give an existing FILE, or - for standard input", err)
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		return file, info.Size(), nil
	}
	return file, -1, nil
}

// position is a position in the log: a sequence or a time. The zero value is sequence 0,
// before all events.
type position struct {
	seq  uint64
	time *time.Time // nil for a sequence
	ago  bool       // time was given as a length of time before now
}

// byClock makes a position ago count from the clock of a database whose clock is moved, not
// from that of this machine: on `lapse test` in the year 2000, "10m" is ten minutes before
// its now. Where no clock is moved the request has no responders and returns at once.
func (p *position) byClock(ctx context.Context, lapse *client.Client) {
	if !p.ago {
		return
	}
	if now, err := lapse.TestClock().Now(ctx); err == nil { // nobody answers where none is moved
		p.time = new(now.Add(-time.Since(*p.time)))
	}
}

// parsePosition reads SEQ|TIME|DURATION: a sequence, a time as in RFC 3339, or a duration
// before now. A bare number is a sequence, never unix seconds.
func parsePosition(flag, s string, now time.Time) (position, error) {
	if seq, err := strconv.ParseUint(s, 10, 64); err == nil {
		return position{seq: seq}, nil
	}
	if t, err := schema.ParseTime(s); err == nil {
		return position{time: &t}, nil
	}
	if ago, err := parseDuration(s); err == nil {
		return position{time: new(now.Add(-ago)), ago: true}, nil
	}
	return position{}, usageErrorf("%s %q: use a sequence like 42, a time like 2015-05-17T10:05:03Z, or how long ago, like "+durations, flag, s)
}

// from is the option with which a feed begins at the position.
func (p position) from() client.FeedOption {
	if p.time == nil {
		return client.FromSeq(p.seq)
	}
	return client.FromTime(*p.time)
}

// until is the option with which a feed ends at the position, which still belongs to it.
func (p position) until() client.FeedOption {
	if p.time == nil {
		return client.UntilSeq(p.seq)
	}
	return client.UntilTime(*p.time)
}

// parseTTL returns a TTL as JSON: off, never, a duration, or any number, which the server
// validates, so that 0, -2 and 1.5 get the contract's error.
//
//	30m → 1800    off → null    never → -1    -2 → -2 (400 by the server)
func parseTTL(flag, s string) (string, error) {
	if s == "never" {
		return "-1", nil
	}
	return parseSeconds(flag, s, "seconds, -1,")
}

// parseSeconds is parseTTL without never; legal says what a flag accepts besides a duration.
func parseSeconds(flag, s, legal string) (string, error) {
	if s == "off" || s == "null" {
		return "null", nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil && json.Valid([]byte(s)) {
		return s, nil
	}
	if d, err := parseDuration(s); err == nil && d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10), nil
	}
	return "", usageErrorf("%s %q: use %s or a duration in whole seconds, like "+durations, flag, s, legal)
}
