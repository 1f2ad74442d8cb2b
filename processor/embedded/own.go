package embedded

import (
	"slices"
	"strings"
)

// IsOwnAccount reports whether lapse or NATS has an account of this name, in any case: NATS
// tells them apart by case, people do not.
func IsOwnAccount(name string) bool {
	own := func(account string) bool { return strings.EqualFold(account, name) }
	return strings.HasPrefix(name, "$") || slices.ContainsFunc([]string{"LAPSE", "CLIENTS", "SYS"}, own)
}

// IsOwnUser reports whether lapse has a user of this name.
func IsOwnUser(name string) bool { return slices.Contains(ownUsers, name) }
