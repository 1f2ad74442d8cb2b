package main

import (
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/schema"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "500ms": 500 * time.Millisecond, "90s": 90 * time.Second, "1.5h": 90 * time.Minute, "1h30m": 90 * time.Minute,
		"30d": 30 * day, "2w": 14 * day, "1w2d3h": 9*day + 3*time.Hour, "0d": 0, "106751d": 106751 * day,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "5", "1.5d", "1y", "30 d", "30D", "106752d", "15251w", "99999999999999999999d", "soon", "-1d", "+1h", "1h-5m", "-0s"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

// TestChoices: a flag with a fixed list of values accepts each of them, and the error about
// another value names all. The list of event types is that of the schema.
func TestChoices(t *testing.T) {
	root := newRootCommand(newApp(strings.NewReader(""), io.Discard, io.Discard))
	seen := map[string][]string{}
	walk(root, func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			value, ok := f.Value.(chooser)
			if !ok {
				if kind, usage := pflag.UnquoteUsage(f); strings.Contains(kind, "|") && strings.ToUpper(kind) != kind {
					t.Errorf("%s --%s %s: %s: the choices are in its help only", cmd.CommandPath(), f.Name, kind, usage)
				}
				return
			}
			seen[f.Name] = value.choices()
			err := f.Value.Set("Nope")
			if err == nil {
				t.Fatalf("%s --%s accepts any value", cmd.CommandPath(), f.Name)
			}
			for _, choice := range value.choices() {
				if !strings.Contains(err.Error(), choice) {
					t.Errorf("%s --%s: %v: %s is missing", cmd.CommandPath(), f.Name, err, choice)
				}
				if err := f.Value.Set(choice); err != nil {
					t.Errorf("%s --%s %s: %v", cmd.CommandPath(), f.Name, choice, err)
				}
			}
		})
	})
	if len(seen) < 6 || len(seen["type"]) != schema.EventTypes-1-6 { // without NoEvent and the internal types
		t.Errorf("flags with choices: %v", seen)
	}
}

// TestSizes: parseSize reads plain numbers and the units that the help shows, and every
// size flag accepts them.
func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1GiB": 1 << 30, "64 MiB": 64 << 20, "1536KiB": 1536 << 10, "2TiB": 2 << 40, "5B": 5, "0": 0, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
		if back, err := parseSize(showSize(want)); err != nil || back != want {
			t.Errorf("%s reads back as %d, %v", showSize(want), back, err)
		}
	}
	for _, text := range []string{"", "GiB", "1GB", "1 gib", "1.5GiB", "-1", "8388608TiB", "9223372036854775808", "1  KiB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
	walk(newRootCommand(newApp(strings.NewReader(""), io.Discard, io.Discard)), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(f.Name, "bytes") {
				return
			}
			for _, text := range []string{f.DefValue, "1048576", "1GiB"} {
				if err := f.Value.Set(text); err != nil {
					t.Errorf("%s --%s %s: %v", cmd.CommandPath(), f.Name, text, err)
				}
			}
			if err := f.Value.Set("0"); err == nil || !strings.Contains(err.Error(), sizes) {
				t.Errorf("%s --%s 0: %v", cmd.CommandPath(), f.Name, err)
			}
		})
	})
}

// TestShowDuration: parseDuration reads back every shown duration.
func TestShowDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 90 * time.Second: "1m30s", time.Minute: "1m", time.Hour: "1h", 90 * time.Minute: "1h30m",
		time.Hour + time.Second: "1h0m1s", 24 * time.Hour: "1d", 36 * time.Hour: "36h", 720 * time.Hour: "30d", 1500 * time.Millisecond: "1.5s",
		10 * time.Minute: "10m", 20 * time.Hour: "20h",
	} {
		got := showDuration(d)
		if got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
		if back, err := parseDuration(got); err != nil || back != d {
			t.Errorf("%s reads back as %v, %v", got, back, err)
		}
	}
}

// TestBareNumber: a number alone counts seconds in every flag for a length of time, unless the
// flag also has a word: --retain 5 may mean days, and would trim the log.
func TestBareNumber(t *testing.T) {
	walk(newRootCommand(newApp(strings.NewReader(""), io.Discard, io.Discard)), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			d, ok := f.Value.(*durationFlag)
			if !ok {
				return
			}
			if err := d.Set("20"); d.zero != "" && err == nil || d.zero == "" && (err != nil || *d.to != 20*time.Second) {
				t.Errorf("%s --%s 20: %s, %v", cmd.CommandPath(), f.Name, d, err)
			}
		})
	})
}
