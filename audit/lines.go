package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/lapsedb/lapse/schema"
)

// Lines audits an exported log, one event as JSON per line. JSON with a sequence that is
// no valid event is a finding; any other line is an error with its number. progress, if
// not nil, is called with the length of each line in bytes.
func (a *Auditor) Lines(r io.Reader, progress func(bytes int)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<18), schema.MaxLineBytes)
	for n := 1; lines.Scan(); n++ {
		line := lines.Bytes()
		if progress != nil {
			progress(len(line) + 1)
		}
		if len(line) == 0 {
			continue
		}
		seq, e, err := schema.ParseEventLine(line)
		switch {
		case err == nil:
			err = a.Event(e)
		case seq != 0:
			a.Foreign(seq, err)
			err = nil
		default:
			err = fmt.Errorf("line %d is no event: %w: give the output of `lapse export`", n, err)
		}
		if err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %d bytes: give the output of `lapse export`", schema.MaxLineBytes)
	}
	return lines.Err()
}
