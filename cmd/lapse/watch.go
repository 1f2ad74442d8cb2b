package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// newWatchCommand follows the log. It has two modes: printing, which remembers nothing, and
// acting (act.go), whose position NATS keeps under --durable. An interrupt ends either with
// 0.
func newWatchCommand(a *app) *cobra.Command {
	var conn connection
	var types, collections []string
	var since string
	var act actionFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow events until interrupted, or run a command for each",
		Long: `watch prints events. With --durable and --exec or --post it runs a command or sends a
request for each event instead: at least once, in order for each document, across restarts.
What fails is tried again, after 0.1 s at first and after 10 s at last.`,
		Example: `  lapse watch --type DocumentExpired
  lapse watch --collection orders --since 10m --json
  lapse watch --durable trial-mails --collection trials --type DocumentExpired \
    --exec /etc/lapse/trial-mails --tries 5 --poison unsent-mails`,
		Args: arguments(0, 0),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	cmd.Flags().VarP(&choicesFlag{&types, schema.EventNames()}, "type", "t", "only events of `TYPE`, like DocumentExpired; repeatable")
	cmd.Flags().StringSliceVarP(&collections, "collection", "c", nil, "only events of `COLLECTION`; repeatable")
	cmd.Flags().StringVar(&since, "since", "", "begin at a sequence, a time or a duration ago: `SEQ|TIME|DURATION` (default now); with --durable, only at the first start")
	act.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := act.check(cmd.Flags(), collections); err != nil {
			return err
		}
		opts := feedOptions(types, collections)
		var begin position
		if since != "" {
			var err error
			if begin, err = parsePosition("--since", since, time.Now()); err != nil {
				return err
			}
		}
		if act.durable != "" {
			return a.act(cmd.Context(), conn, act, begin, opts)
		}
		lapse, hangUp, err := conn.connect(cmd.Context(), a.connectionNotices()...)
		if err != nil {
			return err
		}
		defer hangUp()
		if since != "" {
			begin.byClock(cmd.Context(), lapse)
			if err := a.tellTrimmed(cmd.Context(), lapse, begin); err != nil && cmd.Context().Err() == nil {
				return err
			}
			opts = append(opts, begin.from())
		}
		printer := newEventPrinter(out)
		for e, err := range lapse.Changes(cmd.Context(), opts...) {
			if err == nil {
				err = printer.print(e.Schema())
			} else if cmd.Context().Err() != nil {
				return printer.flush() // an interrupt is no error
			}
			if err != nil {
				return cmp.Or(printer.flush(), err)
			}
		}
		return printer.flush()
	}
	return cmd
}

// tellTrimmed reports events that are missing between a position and the beginning of the
// log, as retention has removed them. It reads the first event, since a position may be a
// time.
func (a *app) tellTrimmed(ctx context.Context, lapse *client.Client, from position) error {
	if first, _, err := lapse.LogBounds(ctx); err != nil || first <= 1 {
		return err
	}
	// The first event has the time at which the log begins; the bounds have only its
	// sequence.
	for entry, err := range lapse.Log(ctx) {
		if err != nil {
			return err
		}
		if entry.Event != nil && from.before(entry.Event.Schema()) {
			a.leftOut("the log begins with sequence %d, at %s: only an earlier export has the events before it", entry.Seq, showMillis(entry.Event.Time.UnixMilli()))
		}
		break
	}
	return nil
}

// feedOptions returns the options of a feed for --type and --collection; several of one
// kind are alternatives.
func feedOptions(types, collections []string) (opts []client.FeedOption) {
	for _, name := range types {
		opts = append(opts, client.OfType(schema.ParseEventType(name)))
	}
	for _, name := range collections {
		opts = append(opts, client.InCollection(name))
	}
	return opts
}

// connectionNotices report that NATS refuses the login, and on a terminal that the
// connection is lost or back. A refusal is reported once until a connection succeeds, since
// nats.go tries again every few seconds.
func (a *app) connectionNotices() []nats.Option {
	terminal, refused := a.isTerminal(a.stderr), false // nats.go calls the handlers one after the other
	return []nats.Option{
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if client.IsLogin(err) && !refused {
				refused = true
				a.report(slog.LevelWarn, fmt.Sprintf("NATS refuses the credentials (%v): renew them, lapse goes on trying", err))
			}
		}),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if err != nil && terminal {
				a.report(slog.LevelWarn, "the connection is lost, connecting again …")
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			if terminal || refused {
				a.report(slog.LevelInfo, "connected again")
			}
			refused = false
		}),
	}
}
