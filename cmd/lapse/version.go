package main

import (
	"regexp"
	"runtime/debug"
	"strings"
)

// version is the version of the build: a tag, or a pseudo-version of a commit.
var version = buildVersion()

func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// semver returns version in the form that NATS services require.
func semver() string {
	if v := strings.TrimPrefix(version, "v"); semantic.MatchString(v) {
		return v
	}
	return "0.0.0-devel"
}
