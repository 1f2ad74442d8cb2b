// Package release tests what a release consists of: archives, packages, image, unit and
// workflows. It is a module of its own, so that goreleaser is no dependency of lapse.
package release
