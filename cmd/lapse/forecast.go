package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	color "github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// newForecastCommand is the request forecast of the contract, for people with a chart of
// it.
func newForecastCommand(a *app) *cobra.Command {
	var conn connection
	var f forecastFlags
	cmd := &cobra.Command{
		Use:   "forecast COLL",
		Short: "Count documents by when they expire",
		Long: `forecast counts the documents of a collection by when they expire, or would expire
under another default TTL. It changes nothing. Times are UTC; buckets begin at
multiples of their size.`,
		Example: `  lapse forecast orders
  lapse forecast orders --next 7d --bucket 1d
  lapse forecast orders --default-ttl 30d`,
		Args: arguments(1, 1),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	f.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body, err := f.body(cmd, out.forPeople())
		if err != nil {
			return err
		}
		forecast, reply, err := ask[client.Forecast](cmd.Context(), &conn, "forecast", args[0], "", body)
		if err != nil {
			return err
		}
		if !out.forPeople() {
			return out.document(reply)
		}
		return out.forecast(&forecast)
	}
	return cmd
}

// forecastFlags are the flags of forecast.
type forecastFlags struct {
	next, bucket time.Duration
	defaultTTL   string
}

func (f *forecastFlags) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.next = 24 * time.Hour
	flags.Var(&durationFlag{to: &f.next, least: time.Second, seconds: true}, "next", "look ahead for `DURATION`")
	flags.Var(&durationFlag{to: &f.bucket, least: time.Second, seconds: true}, "bucket", "count in buckets of `DURATION` (default about 24 buckets, 12 on a terminal)")
	flags.StringVar(&f.defaultTTL, "default-ttl", "", "assume this default TTL: `SECONDS` or a duration, -1 for none, off to disable TTL")
}

// body returns the body of the request. Without --bucket, people get half as many buckets
// as programs, so that totals and bars fit into 24 rows: the server's default size for
// twice the length. Members without a flag are left out, so that its defaults apply.
func (f *forecastFlags) body(cmd *cobra.Command, people bool) ([]byte, error) {
	given := cmd.Flags().Changed
	if people && f.bucket == 0 {
		f.bucket = time.Duration(schema.ForecastRequest{Next: 2 * int64(f.next/time.Second)}.EnsureDefaults().Bucket) * time.Second
	}
	members := []string{fmt.Sprintf(`"next":%d`, f.next/time.Second)}
	if f.bucket > 0 {
		members = append(members, fmt.Sprintf(`"bucket":%d`, f.bucket/time.Second))
	}
	if given("default-ttl") {
		ttl, err := parseTTL("--default-ttl", f.defaultTTL)
		if err != nil {
			return nil, err
		}
		members = append(members, `"defaultTtl":`+ttl)
	}
	return []byte("{" + strings.Join(members, ",") + "}"), nil
}

// forecast prints the totals and a bar for each bucket, for people. Numbers that should be
// 0 are red.
func (out *output) forecast(f *client.Forecast) error {
	p := out.palette()
	alarm := func(n int64) string {
		if n == 0 {
			return "0"
		}
		return p.paint(strconv.FormatInt(n, 10), color.FgRed)
	}
	ttl := "off"
	if f.DefaultTTL != nil {
		ttl = describeTTL(int64(*f.DefaultTTL))
	}
	if f.WhatIf {
		ttl = p.paint("if it were "+ttl, color.FgYellow)
	}
	t := out.facts(p)
	row := t.add
	row("collection", p.paint(printable(f.Collection), color.Bold))
	row("default TTL", ttl)
	row("documents", strconv.FormatInt(f.Documents, 10))
	row("overdue", alarm(f.Overdue))
	if f.WhatIf {
		row("expire at once", alarm(f.AtOnce))
	}
	row("due", fmt.Sprintf("%d in %s, until %s", f.Due, showDuration(time.Duration(f.Until-f.Now)*time.Second), showSecond(f.Until)))
	row("later", strconv.FormatInt(f.Later, 10))
	row("never", strconv.FormatInt(f.Never, 10))
	if err := out.render(t); err != nil || f.Due == 0 {
		return err
	}
	fmt.Fprintln(out.stdout)
	return out.render(out.chart(f))
}

const minute, day = 60, 24 * 3600 // seconds

func showSecond(second int64) string {
	return time.Unix(second, 0).UTC().Format("2006-01-02 15:04:05 MST")
}

// chart returns a table with a line for each bucket, labelled with its beginning, and one
// for the end of the last, unless buckets are whole days:
//
//	2026-11-28 10:00  12  ████
//	           11:00   3  █
//	           12:00
func (out *output) chart(f *client.Forecast) table.Writer {
	p := out.palette()
	t := out.table()
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: color.AlignRight}})
	most := int64(0)
	for _, b := range f.Buckets {
		most = max(most, b.Due)
	}
	label := labels(f.Bucket)
	count := strconv.FormatInt(most, 10)
	// A bar may have what the label, the largest count and the gaps leave of the line.
	width := out.columns() - len(labels(f.Bucket)(f.Now)) - columnGap - len(count) - columnGap
	for _, b := range f.Buckets {
		t.AppendRow([]any{p.faint(label(b.From)), b.Due, p.paint(bar(b.Due, most, width), color.FgMagenta)})
	}
	if f.Bucket%day != 0 {
		t.AppendRow([]any{p.faint(label(f.Until))})
	}
	return t
}

// labels returns a function that formats the beginning of a bucket, at the resolution
// of the bucket size and in one width. It leaves out a date that repeats.
func labels(bucket int64) func(second int64) string {
	clock := ""
	switch {
	case bucket%minute != 0:
		clock = " 15:04:05"
	case bucket%day != 0:
		clock = " 15:04"
	}
	before := ""
	return func(second int64) string {
		at := time.Unix(second, 0).UTC()
		date := at.Format(time.DateOnly)
		if date == before && clock != "" {
			return strings.Repeat(" ", len(date)) + at.Format(clock)
		}
		before = date
		return date + at.Format(clock)
	}
}

// bar draws n of most in at most width columns, in eighths of a column. A number above 0
// has at least an eighth: a bucket with one document among millions must not look empty.
func bar(n, most int64, width int) string {
	if n == 0 || width < 1 {
		return ""
	}
	eighths := max(1, int(float64(n)/float64(most)*float64(8*width)))
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}
