package offline

import (
	"context"

	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

func (l *Local) Digest() string       { return l.reader.Digest() }
func (l *Local) Seq() uint64          { return l.simulation.Machine.Seq() }
func (l *Local) Limit(q query.Limits) { l.reader.Limits = q }

// Forecast answers as at now in ms.
func (l *Local) Forecast(ctx context.Context, now int64, name schema.CollectionName, body []byte) ([]byte, error) {
	return l.reader.Forecast(ctx, now, name, body)
}
