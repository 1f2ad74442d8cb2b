package gate

import "golang.org/x/mod/semver"

// Steerable reports whether NATS servers of a version publish replies of their own to any
// subject below $JS. that a client names: those before 2.14.10, and 2.15.0 to 2.15.2. It is
// false for what is no semantic version.
func Steerable(version string) bool {
	v := "v" + version
	return semver.IsValid(v) && (semver.Compare(v, "v2.14.10") < 0 || semver.MajorMinor(v) == "v2.15" && semver.Compare(v, "v2.15.3") < 0)
}
