package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// variablePrefix begins the names of the environment variables of serve.
const variablePrefix = "LAPSE_"

// variable returns the environment variable of a flag: LAPSE_STORE_DIR for store-dir.
func variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment are the flags that have their values from the environment, once read.
type fromEnvironment struct {
	flags   map[string]bool // by name
	unknown []string        // variables of no flag
}

// read sets the flags that the command line leaves out. An empty variable counts as not
// set.
func (e *fromEnvironment) read(flags *pflag.FlagSet, environment []string) (refusal error) {
	values := map[string]string{}
	for _, entry := range environment {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, variablePrefix) && value != "" {
			values[name] = value
		}
	}
	e.flags = map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(f.Name)
		value, ok := values[name]
		if f.Name == "help" || !ok {
			return
		}
		delete(values, name)
		if !f.Changed && refusal == nil {
			e.flags[f.Name] = true
			refusal = setFrom(name, value, flags, f)
		}
	})
	e.unknown = slices.Sorted(maps.Keys(values))
	return refusal
}

// setFrom sets a flag to the value of a variable. Elements of a repeatable flag are
// separated by commas.
func setFrom(name, value string, flags *pflag.FlagSet, f *pflag.Flag) error {
	values := []string{value}
	switch f.Value.(type) {
	case *loginFlag, *userFlag:
		values = strings.Split(value, ",")
	}
	if emptyElement(f, value) || slices.Contains(values, "") {
		return usageErrorf("%s %q: an element is empty: leave it out", name, value)
	}
	if f.Name == "nats-url" && strings.Contains(value, "@") {
		return usageErrorf("%s has a login, which other programs can read there: put it into a file, and give %s, %s or %s",
			name, variable("creds"), variable("nkey"), variable("context"))
	}
	for _, one := range values {
		if err := flags.Set(f.Name, one); err != nil {
			if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
				err = invalidCause(invalid)
			}
			return usageErrorf("%s %q: %v", name, one, err)
		}
	}
	return nil
}

// flagName matches a flag in an error.
var flagName = regexp.MustCompile(`--[a-z][a-z-]*`)

// blame adds to an error of wrong usage which of the flags that it names are variables.
func (e *fromEnvironment) blame(err error) error {
	if err == nil || !isUsage(err) {
		return err
	}
	var named []string
	for _, flag := range flagName.FindAllString(err.Error(), -1) {
		if name := flag[2:]; e.flags[name] {
			named = append(named, fmt.Sprintf("%s is from %s", flag, variable(name)))
		}
	}
	if named == nil {
		return err
	}
	slices.Sort(named)
	return usageErrorf("%v (%s)", err, strings.Join(slices.Compact(named), ", "))
}
