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

// Flags of serve from the environment, for containers and units. The rules:
//
//   - LAPSE_STORE_DIR is --store-dir; every flag has such a variable, so none has to be
//     registered.
//   - A flag on the command line wins. The variable is then not even parsed.
//   - An empty variable counts as not set: Compose and Kubernetes pass variables that have
//     no value.
//   - A bad value is exit 2 and names the variable. A check across several flags names
//     flags; blame adds which of them come from variables.
//   - A variable of no flag is a warning, not an error: another version may know it.
//
// Only serve and config read them. Client commands would be led to another server by a
// variable that was meant for a service on the same machine; they have NATS_URL and
// NATS_CONTEXT instead.

// variablePrefix begins the names of the environment variables of serve.
const variablePrefix = "LAPSE_"

// variable returns the environment variable of a flag: LAPSE_STORE_DIR for store-dir.
func variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment are the flags that have their values from the environment, once read. The
// zero value has none.
type fromEnvironment struct {
	flags   map[string]bool // by name
	unknown []string        // variables of no flag
}

// read sets the flags that the command line leaves out, and returns the first error. It
// goes on after one, so that unknown lacks no variable. It must run before anything looks
// at the values of flags.
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
// separated by commas; slices of pflag split by themselves. What refuseGiven refuses on the
// command line is refused here, too, except a value given twice, which a variable cannot
// be.
func setFrom(name, value string, flags *pflag.FlagSet, f *pflag.Flag) error {
	values := []string{value}
	switch f.Value.(type) {
	case *loginFlag, *userFlag:
		values = strings.Split(value, ",")
	}
	if emptyElement(f, value) || slices.Contains(values, "") {
		return usageErrorf("%s %q: an element is empty: leave it out", name, value)
	}
	// The environment of a process is in /proc, in `docker inspect`, and in a pod's
	// description.
	if f.Name == "nats-url" && strings.Contains(value, "@") {
		return usageErrorf("%s has a login, which other programs can read there: put it into a file, and give %s, %s or %s",
			name, variable("creds"), variable("nkey"), variable("context"))
	}
	for _, element := range values {
		if err := flags.Set(f.Name, element); err != nil {
			if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
				err = invalidCause(invalid)
			}
			return usageErrorf("%s %q: %v", name, element, err)
		}
	}
	return nil
}

// flagName matches a flag in an error.
var flagName = regexp.MustCompile(`--[a-z][a-z-]*`)

// blame adds to an error of wrong usage which of the flags that it names are variables:
// "--retain …: … (--retain is from LAPSE_RETAIN)". Without it, who set no flag at all would
// look for one.
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
