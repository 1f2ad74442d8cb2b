package processor

import (
	"context"
	"time"
)

// FlushInterval is how often the projection is flushed.
const FlushInterval time.Duration = flushInterval

// Lead begins a term, of which ctx is the begin.
func (p *Processor) Lead(ctx context.Context) error {
	_, err := p.lead(ctx)
	return err
}
