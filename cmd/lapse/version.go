package main

import (
	"cmp"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// What a release is built with, by -ldflags "-X main.version=… -X main.commit=… -X main.date=…".
// Other builds have them empty: what Go stores about the checkout is used then.
var version, commit, date string

func init() {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	version, commit, date = describeBuild(info, version, commit, date)
}

// describeBuild completes what -ldflags give by the build information: the version, without
// the v of its tag, the commit and its date. Without a version it makes the pseudo-version
// that Go would make of the commit. What nothing says is "".
//
//	release    0.4.0, commit and date by -ldflags
//	checkout   0.0.0-20261122072509-42de0ee94d35+dirty
//	go run     (devel)
func describeBuild(info *debug.BuildInfo, version, commit, date string) (string, string, string) {
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	commit, date = cmp.Or(commit, settings["vcs.revision"]), cmp.Or(date, settings["vcs.time"])
	version = strings.TrimPrefix(cmp.Or(version, info.Main.Version, unknownVersion), "v")
	if t, err := time.Parse(time.RFC3339, date); err == nil && version == unknownVersion && len(commit) >= shortCommit {
		version = "0.0.0-" + t.UTC().Format("20060102150405") + "-" + commit[:shortCommit]
		if settings["vcs.modified"] == "true" {
			version += "+dirty"
		}
	}
	return version, commit, date
}

// unknownVersion is the version of a build whose commit Go did not store, as of go run.
const unknownVersion = "(devel)"

// shortCommit is as long as the commit in a pseudo-version.
const shortCommit = 12

// versionLine is what lapse version and lapse --version print.
func versionLine() string {
	parts := []string{"lapse " + version}
	if commit != "" {
		parts = append(parts, "commit "+commit[:min(len(commit), shortCommit)])
	}
	if date != "" {
		parts = append(parts, date)
	}
	return strings.Join(append(parts, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH), ", ")
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, commit and platform",
		Example: "  lapse version",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.stdout, versionLine())
			return err
		},
	}
}

// buildDate returns the time of the commit, or that of 1970 if it is unknown: what is made
// from it, such as manual pages, has the same bytes each time.
func buildDate() time.Time {
	t, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return t.UTC()
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// pseudo matches the time and commit that the pseudo-version of a build without a tag ends in.
var pseudo = regexp.MustCompile(`[-.]\d{14}-[0-9a-f]{12}(\+dirty)?$`)

// semver returns the version in the form that NATS services require. Date and commit of a
// release are its build metadata, as in 0.3.0+20261126.42de0ee94d35: they do not count when
// versions are compared.
func semver() string {
	if !semantic.MatchString(version) {
		return "0.0.0-devel"
	}
	if commit == "" || date == "" || pseudo.MatchString(version) {
		return version
	}
	separator := "+"
	if strings.Contains(version, separator) {
		separator = "."
	}
	return version + separator + buildDate().Format("20060102") + "." + commit[:min(len(commit), shortCommit)]
}
