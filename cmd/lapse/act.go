package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"

	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/client/action"
	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/schema"
)

// watch with an action: a command (--exec) or a request (--post) for each event, at least
// once. Package client/action does it, over a durable consumer, so the position survives
// restarts; of several processes with one --durable one gets the events, and another goes
// on when it ends. This file reads flags and connects.
//
// What a script can rely on: an event is acknowledged only after its action has succeeded,
// or after it was put aside as --tries and --poison say. Ctrl-C and SIGTERM end with 0; an
// action that runs at that moment has action.EndTimeout, after which its event comes again.
// --dry-run prints what would happen, and neither makes a durable nor moves the position of
// one.

// actionFlags are the flags of watch for a command or request per event. Those that package
// action needs are in Options.
type actionFlags struct {
	action.Options
	exec, post, postFile, secretFile string
	durable, poisonFile, metrics     string
	dryRun                           bool
}

// defaultWorkers is the default of --workers.
const defaultWorkers = 4

func (f *actionFlags) add(to *pflag.FlagSet) {
	addGroup(to, "Actions", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.durable, "durable", "", "store the position under `NAME`, and go on from there at the next start")
		flags.StringVar(&f.exec, "exec", "", "run `CMD` by /bin/sh -c for each event, with the event as JSON on standard input and LAPSE_SEQ; exit code 0 is success")
		flags.StringVar(&f.post, "post", "", "send each event as JSON to `URL` by POST; a status of 2xx is success")
		flags.StringVar(&f.postFile, "post-file", "", "--post to the URL in `FILE`, which may have a login")
		flags.StringVar(&f.secretFile, "secret-file", "", "sign each POST in Lapse-Signature with the secret in `FILE`, which only its owner and group may read")
		durationVar(flags, &f.Timeout, "run-timeout", action.DefaultTimeout, 1, "a try that takes longer than `DURATION` has failed: SIGTERM, and SIGKILL after 5s")
		flags.IntVar(&f.Workers, "workers", defaultWorkers, "handle `N` documents at the same time, the events of each in order")
		flags.IntVar(&f.Tries, "tries", 0, "put an event aside after `N` failures (default never)")
		flags.StringVar(&f.Without, "poison", "", "put events aside into `COLLECTION`, which is created if it does not exist")
		flags.StringVar(&f.poisonFile, "poison-file", "", "append events that are put aside to `FILE`")
		flags.BoolVar(&f.dryRun, "dry-run", false, "print what would be run or sent, as JSON lines, and do nothing")
		flags.StringVar(&f.metrics, "metrics", "", "serve metrics for Prometheus at `HOST:PORT`")
	})
}

// durableName matches what may name a durable: a token of a subject, without characters
// that NATS refuses in names.
var durableName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// check refuses flags that contradict each other. Without an action all are absent. With
// one, the first of the table that is wrong is reported; each entry says what to do.
func (f *actionFlags) check(given *pflag.FlagSet, collections []string) error {
	actions := len(slices.DeleteFunc([]string{f.exec, f.post, f.postFile}, func(flag string) bool { return flag == "" }))
	if actions == 0 {
		for _, name := range []string{"durable", "secret-file", "run-timeout", "workers", "tries", "poison", "poison-file", "dry-run", "metrics"} {
			if given.Changed(name) {
				return usageErrorf("--%s without --exec or --post: say what to do for each event", name)
			}
		}
		return nil
	}
	for _, wrong := range []struct {
		is   bool
		says string
	}{
		{actions > 1, "more than one of --exec, --post and --post-file given: use one of them, and another --durable for another"},
		{!durableName.MatchString(f.durable), "--exec and --post need --durable NAME, of letters, digits, _ and -, under which the position is stored"},
		{f.secretFile != "" && f.exec != "", "--secret-file without --post: only requests have a signature"},
		{f.Workers < 1 || f.Workers > client.MaxWorkers, fmt.Sprintf("--workers %d: use 1 to %d", f.Workers, client.MaxWorkers)},
		{given.Changed("tries") && f.Tries < 1, fmt.Sprintf("--tries %d: use 1 or more, or leave it out to try for ever", f.Tries)},
		{f.Tries > 0 && (f.Without != "") == (f.poisonFile != ""), "--tries needs one of --poison COLLECTION and --poison-file FILE: where events go that fail so often"},
		{f.Tries == 0 && (f.Without != "" || f.poisonFile != ""), "--poison and --poison-file need --tries N: after how many failures"},
		{slices.Contains(collections, f.Without), "--poison is one of --collection, and its own events would fail again: choose another"},
	} {
		if wrong.is {
			return usageErrorf("%s", wrong.says)
		}
	}
	if _, err := schema.ParseCollectionName(f.Without); err != nil && f.Without != "" {
		return usageErrorf("--poison: %v", err)
	}
	if f.metrics != "" {
		return checkAddress("--metrics", f.metrics)
	}
	return nil
}

// action returns what happens for each event, and how the ready line names it. A URL with a
// login must be in a file, since arguments are visible to other users of the machine;
// POST's name has no login.
func (f *actionFlags) action(a *app, database string) (do action.Action, what string, err error) {
	if f.exec != "" {
		return action.Exec{Command: f.exec, Environment: a.environment, Stdout: a.stdout, Stderr: a.stderr}, "--exec", nil
	}
	flag, address, secret := "--post", f.post, ""
	if f.postFile != "" {
		flag = "--post-file " + f.postFile
		if address, err = host.ReadPassword(f.postFile); err != nil {
			return nil, "", usageErrorf("--post-file: %v", err)
		}
	}
	if f.secretFile != "" {
		if secret, err = host.ReadPassword(f.secretFile); err != nil {
			return nil, "", usageErrorf("--secret-file: %v", err)
		}
	}
	post, err := action.NewPost(address, database, secret)
	switch {
	case err != nil:
		return nil, "", usageErrorf("%s: %v", flag, err)
	case f.post != "" && post.HasLogin():
		return nil, "", usageErrorf("the URL of --post has a login, which other programs can read there: put the URL into a file and give --post-file FILE")
	}
	return post, "POST " + post.String(), nil
}

// act does the action for each event until ctx ends. The connection outlives ctx (dial, not
// open): action.Run acknowledges what has just been done before it returns. begin counts
// only when the durable is made, at its first start.
func (a *app) act(ctx context.Context, conn connection, f actionFlags, begin position, feed []client.FeedOption) error {
	do, what, err := f.action(a, conn.database)
	if err != nil {
		return err
	}
	if f.poisonFile != "" && !f.dryRun {
		file, err := os.OpenFile(f.poisonFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return usageErrorf("--poison-file: %v", err)
		}
		defer file.Close()
		f.Poison = action.PoisonFile(file, f.durable)
	}
	lapse, hangUp, err := conn.dial(a.connectionNotices()) // open would disconnect before the last acknowledgements
	if err != nil {
		return err
	}
	defer hangUp()
	if begin != (position{}) {
		begin.byClock(ctx, lapse)
		feed = append(feed, begin.from())
	}
	if f.dryRun {
		return a.preview(ctx, lapse, do, f, feed)
	}
	if f.Without != "" {
		collection, err := lapse.OpenCollection(ctx, f.Without)
		if err != nil {
			return err
		}
		f.Poison = action.PoisonCollection(collection, f.durable)
	}
	log := a.openLog(logFlags{})
	defer log.close()
	f.Logger, f.Metrics = log.Logger, action.NewMetrics(lapse, f.durable)
	if f.metrics != "" {
		stop, err := host.ServeMetrics(f.metrics, f.Metrics, http.NewServeMux(), log.Logger)
		if err != nil {
			return err
		}
		defer stop()
	}
	log.ready(fmt.Sprintf("events of database %s for durable %s, %s", lapse.Database(), f.durable, what), "")
	if err = action.Run(ctx, lapse, do, f.durable, f.Options, feed...); ctx.Err() != nil {
		return nil
	}
	return err
}

// preview prints what the action would do, from the position of the durable if there is
// one. It reads the log as watch does, with a consumer of its own that nobody shares.
func (a *app) preview(ctx context.Context, lapse *client.Client, do action.Action, f actionFlags, feed []client.FeedOption) error {
	consumers, err := lapse.Consumers(ctx)
	if err != nil {
		return err
	}
	for _, c := range consumers {
		if c.Name == f.durable {
			feed = append(feed, client.FromSeq(c.Seq+1))
		}
	}
	lines := json.NewEncoder(a.stdout)
	lines.SetEscapeHTML(false)
	for e, err := range lapse.Changes(ctx, feed...) {
		if ctx.Err() != nil {
			return nil
		}
		var line any
		if err == nil && e.Collection != f.Without {
			if line, err = do.Preview(e); err == nil {
				err = lines.Encode(line)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
