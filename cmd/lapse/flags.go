package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// durationFlag is a flag whose value is a length of time.
type durationFlag struct {
	to      *time.Duration
	least   time.Duration
	most    time.Duration // 0 for no limit
	seconds bool          // whole seconds only; a bare number counts seconds
	zero    string        // the word for 0, which least does not apply to; "" for none
}

// durationVar adds a duration flag with a default and a lower limit.
func durationVar(flags *pflag.FlagSet, to *time.Duration, name string, fallback, least time.Duration, usage string) {
	*to = fallback
	flags.Var(&durationFlag{to: to, least: least}, name, usage)
}

func (f *durationFlag) Set(text string) error {
	if f.zero != "" && text == f.zero {
		*f.to = 0
		return nil
	}
	d, err := parseDuration(text)
	if n, notNumber := strconv.ParseUint(text, 10, 32); f.seconds && notNumber == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < f.least || f.most > 0 && d > f.most || f.seconds && d%time.Second != 0 {
		return errors.New(f.use())
	}
	*f.to = d
	return nil
}

// use describes the legal values of the flag.
func (f *durationFlag) use() string {
	limits := "above 0"
	switch {
	case f.most > 0:
		limits = fmt.Sprintf("from %s to %s", showDuration(f.least), showDuration(f.most))
	case f.least > 1:
		limits = fmt.Sprintf("of %s or more", showDuration(f.least))
	}
	if f.seconds {
		limits += " in whole seconds"
	}
	text := "use "
	if f.zero != "" {
		text += f.zero + ", or "
	}
	return text + "a duration " + limits + ", like " + durations
}

func (f *durationFlag) String() string {
	if *f.to == 0 {
		return f.zero
	}
	return showDuration(*f.to)
}

func (*durationFlag) Type() string { return "duration" }

// durations are examples of what parseDuration reads.
const durations = "90s, 1h30m, 30d or 2w"

var daysOrWeeks = regexp.MustCompile(`\d+[dw]`)

// parseDuration is time.ParseDuration with two more units: d, 24 hours, and w,
// 7 days. Both take whole numbers.
func parseDuration(text string) (time.Duration, error) {
	if strings.Contains(text, ".") {
		return time.ParseDuration(text)
	}
	return time.ParseDuration(daysOrWeeks.ReplaceAllStringFunc(text, func(part string) string {
		hours := 24
		if strings.HasSuffix(part, "w") {
			hours *= 7
		}
		n, _ := strconv.ParseUint(part[:len(part)-1], 10, 32) // above 32 bits n is the maximum, which ParseDuration refuses
		return fmt.Sprintf("%dh", n*uint64(hours))
	}))
}

// showDuration writes a duration as parseDuration reads it: whole days as 30d, and
// no zeros at the end, 1h30m for 1h30m0s.
func showDuration(d time.Duration) string {
	if d != 0 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// choiceFlag is a flag that takes one of a few words.
type choiceFlag struct {
	to    *string
	words []string
}

func choiceVar(flags *pflag.FlagSet, to *string, name, fallback, usage string, words ...string) {
	*to = fallback
	flags.Var(&choiceFlag{to, words}, name, usage)
}

func (f *choiceFlag) Set(text string) error {
	if !slices.Contains(f.words, text) {
		return fmt.Errorf("use %s", oneOf(f.words))
	}
	*f.to = text
	return nil
}

func (f *choiceFlag) String() string { return *f.to }

// Type returns the words, which the help shows as the value.
func (f *choiceFlag) Type() string { return strings.Join(f.words, "|") }

// oneOf formats words as "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// flagError turns an error of reading flags into a usage error that says what to do.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return usageErrorf("%v: see `%s --help`", err, cmd.CommandPath())
	}
	cause := errors.Unwrap(err)
	var number *strconv.NumError
	if errors.As(err, &number) {
		switch number.Func {
		case "ParseBool":
			cause = errors.New("use true or false")
		case "ParseUint":
			cause = errors.New("use a whole number of 0 or more")
		default:
			cause = errors.New("use a whole number")
		}
	}
	return usageErrorf("--%s %q: %v", invalid.GetFlag().Name, invalid.GetValue(), cause)
}
