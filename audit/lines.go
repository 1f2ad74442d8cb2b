package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/lapsedb/lapse/schema"
)

// Lines audits an exported log, an event as JSON a line. What is JSON and says a
// sequence, and is no event for another reason, is a finding; any other line is
// an error, which tells its number. progress, if not nil, is called with the
// bytes of each line.
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
			err = fmt.Errorf("line %d is no line of an exported log: %w: give what `lapse export` prints", n, err)
		}
		if err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %d bytes, as no line of an exported log is", schema.MaxLineBytes)
	}
	return lines.Err()
}
