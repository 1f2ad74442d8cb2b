// Package roll replaces the processes of a release by this version, and back, under load. It
// builds the release from its commit.
package roll
