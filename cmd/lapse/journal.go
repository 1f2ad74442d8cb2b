package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// Under systemd standard error is a socket of the journal. A line there may begin with its
// priority in angle brackets (sd-daemon(3)), so that `journalctl -p warning` finds it.
// slog's handlers cannot write before their own text. So the handler below writes to
// prefixed, and prioritized sets the prefix for each record while it holds the lock.

// isJournal reports whether to is the stream to the journal that systemd has made for this
// process, as JOURNAL_STREAM names it, and not what a parent has inherited and redirected.
func isJournal(to io.Writer) bool {
	if to != os.Stderr {
		return false
	}
	is, err := journal.StderrIsJournalStream()
	return is && err == nil
}

// prioritized is a slog.Handler that begins each line with its priority, as in
// sd-daemon(3). Handlers derived by WithAttrs and WithGroup share prefixed, and thereby its
// lock.
type prioritized struct {
	slog.Handler
	*prefixed // to which Handler writes
}

// Handle implements slog.Handler.
func (p prioritized) Handle(ctx context.Context, r slog.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prefix = priority(r.Level)
	return p.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (p prioritized) WithAttrs(attrs []slog.Attr) slog.Handler {
	return prioritized{p.Handler.WithAttrs(attrs), p.prefixed}
}

// WithGroup implements slog.Handler.
func (p prioritized) WithGroup(name string) slog.Handler {
	return prioritized{p.Handler.WithGroup(name), p.prefixed}
}

// priority returns the prefix of a line for the journal, which removes it.
func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "<3>"
	case level >= slog.LevelWarn:
		return "<4>"
	case level >= slog.LevelInfo:
		return "<6>"
	}
	return "<7>"
}

// prefixed writes each line after prefix, in one call, so that nothing comes between the
// two.
type prefixed struct {
	to     io.Writer
	mu     sync.Mutex // held from setting prefix to the end of the Write
	prefix string
}

func (p *prefixed) Write(line []byte) (int, error) {
	if _, err := p.to.Write(append([]byte(p.prefix), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
