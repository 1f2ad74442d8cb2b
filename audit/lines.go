package audit

import (
	"context"
	"errors"
	"io"

	"github.com/lapsedb/lapse/schema"
)

// Lines audits an exported log, one event as JSON per line. JSON with a sequence that is
// no valid event is a finding; any other line is an error with its number. progress, if
// not nil, is called with the length of lines in bytes.
func (a *Auditor) Lines(ctx context.Context, r io.Reader, progress func(bytes int)) error {
	for line, err := range schema.ReadEvents(ctx, r) {
		if progress != nil {
			progress(line.Bytes)
		}
		switch {
		case err == nil:
			err = a.Event(line.Event)
		case line.Seq != 0:
			a.Foreign(line.Seq, errors.Unwrap(err))
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
