// Package settings reads properties of a collection from flags.
package settings

import (
	"flag"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Settings are the properties whose flags are given. So an existing collection keeps the
// others.
type Settings []client.PropertyOption

// Flag defines a flag for a length of time.
func (s *Settings) Flag(name, usage string, property func(time.Duration) client.PropertyOption) {
	flag.Func(name, usage, func(text string) error {
		d, err := time.ParseDuration(text)
		*s = append(*s, property(d))
		return err
	})
}
