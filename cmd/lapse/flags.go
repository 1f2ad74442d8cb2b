package main

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagText returns the text of an option's flag: the tag of its field, in which [NAME] is the
// value.
func flagText[T any](field string) string {
	f, _ := reflect.TypeFor[T]().FieldByName(field)
	return strings.NewReplacer("[", "`", "]", "`").Replace(f.Tag.Get("flag"))
}

// Types of flags, for values that pflag has no type for: lengths of time with days and
// weeks, sizes with units, and words of a list. Each has Set, which reads what a user
// types, and String, which writes it as Set reads it: a value in the help or of `lapse
// config` can be given back.
//
// An error of Set says only what to use. flagError adds the flag and the value, setFrom the
// variable.

// durationFlag is a flag whose value is a length of time. A number alone counts seconds, as
// TTLs do, unless 0 has a word: `--retain 5` may mean days, and would trim the log.
type durationFlag struct {
	to      *time.Duration
	least   time.Duration
	most    time.Duration // 0 for no limit
	seconds bool          // whole seconds only
	zero    string        // the word for 0, which least does not apply to; "" for none. With it, a number needs a unit
}

// durationVar adds a duration flag with a default and a lower limit.
func durationVar(flags *pflag.FlagSet, to *time.Duration, name string, fallback, least time.Duration, usage string) {
	*to = fallback
	flags.Var(&durationFlag{to: to, least: least}, name, usage)
}

// Set implements pflag.Value. The value stays as it was if text is refused.
func (f *durationFlag) Set(text string) error {
	if f.zero != "" && text == f.zero {
		*f.to = 0
		return nil
	}
	d, err := parseDuration(text)
	if n, notNumber := strconv.ParseUint(text, 10, 32); notNumber == nil && f.zero == "" { // --retain 5 may mean days, and would trim the log
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

// parseDuration is time.ParseDuration with two more units: d, 24 hours, and w, 7 days. Both
// accept whole numbers. A length of time has no sign: -1s is not the -1 for never, and -1h
// ago not a time to come.
//
//	1w2d → 216h    30d → 720h    1h30m → 1h30m    1.5h → 1h30m    1.5d → error
func parseDuration(text string) (time.Duration, error) {
	if strings.ContainsAny(text, "+-") {
		return 0, strconv.ErrSyntax
	}
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

// sizeFlag is a flag whose value is a number of bytes. Units are binary only.
type sizeFlag[T int | int64] struct {
	to    *T
	least int64
	zero  string // what 0 means, if that may be given, such as "auto"
}

// sizeVar adds a size flag with a default and a lower limit.
func sizeVar[T int | int64](flags *pflag.FlagSet, to *T, name string, fallback T, least int64, usage string) {
	*to = fallback
	flags.Var(sizeFlag[T]{to: to, least: least}, name, usage)
}

func (f sizeFlag[T]) Set(text string) error {
	if text == f.zero && text != "" {
		*f.to = 0
		return nil
	}
	n, err := parseSize(text)
	if err != nil || n < f.least || int64(T(n)) != n {
		return fmt.Errorf("use a number of bytes, at least %s, like %s", showSize(f.least), sizes)
	}
	*f.to = T(n)
	return nil
}

func (f sizeFlag[T]) String() string {
	if f.zero != "" && *f.to == 0 {
		return f.zero
	}
	return showSize(int64(*f.to))
}

func (sizeFlag[T]) Type() string { return "size" }

// sizes are examples of what parseSize reads.
const sizes = "8192, 64KiB, 512MiB or 1GiB"

var sizeUnits = []string{"B", "KiB", "MiB", "GiB", "TiB"}

var sizeForm = regexp.MustCompile(`^(\d+) ?([KMGT]iB|B|)$`)

// parseSize reads a number of bytes, or of a unit; a space may separate the two. 64KiB is
// 65536; a number beyond 63 bits is an error.
func parseSize(text string) (int64, error) {
	parts := sizeForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, strconv.ErrSyntax
	}
	shift := 10 * max(slices.Index(sizeUnits, parts[2]), 0)
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if n > math.MaxInt64>>shift {
		return 0, strconv.ErrRange
	}
	return n << shift, err
}

// showSize writes a size as parseSize reads it, in the largest unit of which it is a
// whole number.
func showSize(bytes int64) string {
	unit := 0
	for ; bytes != 0 && bytes%1024 == 0 && unit < len(sizeUnits)-1; unit++ {
		bytes /= 1024
	}
	if unit == 0 {
		return fmt.Sprint(bytes)
	}
	return fmt.Sprint(bytes) + sizeUnits[unit]
}

// chooser is a flag with a fixed list of values, which errors and completion name.
type chooser interface{ choices() []string }

// choiceFlag is a flag that accepts one of a few values. These are written as fmt prints
// them, so numbers work as well as words.
type choiceFlag[T any] struct {
	to     *T
	values []T
}

// choiceVar adds a choice flag. fallback need not be one of values: "" stands for not
// given.
func choiceVar[T any](flags *pflag.FlagSet, to *T, name string, fallback T, usage string, values ...T) {
	*to = fallback
	flags.Var(&choiceFlag[T]{to, values}, name, usage)
}

func (f *choiceFlag[T]) Set(text string) error {
	i := slices.Index(f.choices(), text)
	if i < 0 {
		return fmt.Errorf("use %s", oneOf(f.choices()))
	}
	*f.to = f.values[i]
	return nil
}

func (f *choiceFlag[T]) String() string { return fmt.Sprint(*f.to) }

// Type returns the values, which the help shows.
func (f *choiceFlag[T]) Type() string { return strings.Join(f.choices(), "|") }

func (f *choiceFlag[T]) choices() (words []string) {
	for _, value := range f.values {
		words = append(words, fmt.Sprint(value))
	}
	return words
}

// choicesFlag is a repeatable flag that accepts some of many words, also separated by commas.
type choicesFlag struct {
	to    *[]string
	words []string
}

func (f *choicesFlag) Set(text string) error {
	given := strings.Split(text, ",")
	for _, word := range given {
		if !slices.Contains(f.words, word) {
			return fmt.Errorf("use %s", oneOf(f.words))
		}
	}
	*f.to = append(*f.to, given...)
	return nil
}

func (f *choicesFlag) String() string    { return strings.Join(*f.to, ",") }
func (*choicesFlag) Type() string        { return "strings" }
func (f *choicesFlag) choices() []string { return f.words }

// oneOf formats words as "a, b or c".
func oneOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// flagError turns an error of reading flags into a usage error that says what to do:
// --retain "5": use forever, or a duration …
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return usageErrorf("%v: see `%s --help`", err, cmd.CommandPath())
	}
	return usageErrorf("--%s %q: %v", invalid.GetFlag().Name, invalid.GetValue(), invalidCause(invalid))
}

// invalidCause returns why a value of a flag is refused, as what to use.
func invalidCause(invalid *pflag.InvalidValueError) error {
	number, ok := errors.AsType[*strconv.NumError](invalid)
	switch {
	case !ok:
		return invalid.Unwrap()
	case number.Func == "ParseBool":
		return errors.New("use true or false")
	case number.Func == "ParseUint":
		return errors.New("use a whole number of 0 or more")
	}
	return errors.New("use a whole number")
}
