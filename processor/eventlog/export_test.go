package eventlog

import (
	"context"

	"github.com/lapsedb/lapse/schema"
)

const ScrubBytes = scrubBytes

func (l *Log) ReadPatiently(ctx context.Context, from, through uint64, visit func(*schema.Event) error) error {
	return l.readPatiently(ctx, from, through, visit)
}
