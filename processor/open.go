package processor

import "context"

// openStreams checks what there is of the database's in JetStream, before it
// changes anything, and opens the log, or makes it.
func openStreams(ctx context.Context, c Connections, o Options) (log *eventLog, err error) {
	if err := checkVersion(c.Log); err != nil {
		return nil, err
	}
	err = untilOpen(ctx, c, func(try context.Context) error {
		if err := checkStreams(try, c, o.eventlog()); err != nil {
			return err
		}
		if o.Lease > 0 {
			if err := checkLease(try, c.Log, o.Database, o.Replicas); err != nil {
				return err
			}
		}
		log, err = openLog(try, c, o.eventlog())
		return err
	})
	return log, err
}
