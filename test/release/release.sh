#!/bin/sh
# Builds a release into dist, of the tag of the checkout, or else a snapshot of the version
# that CHANGELOG.md names first. With the argument publish it also publishes it.
set -eu
# The Go that test/release/go.mod names, whichever is installed: that of go.mod is the oldest.
GOTOOLCHAIN=$(sed -n 's/^toolchain //p' test/release/go.mod)
export GOTOOLCHAIN
goreleaser=$(go -C test/release tool -n goreleaser)
if ! git ls-remote --get-url >/dev/null 2>&1; then # goreleaser wants a remote
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/lapsedb/lapse
fi
if GORELEASER_CURRENT_TAG=$(git describe --exact-match --tags --match 'v*' 2>/dev/null); then
  how=--skip=publish
  [ "${1:-}" != publish ] || how=
else
  GORELEASER_CURRENT_TAG=v$(sed -nE 's/^## \[?([0-9]+\.[0-9]+\.[0-9]+).*/\1/p' CHANGELOG.md | head -n 1)
  how=--snapshot
fi
export GORELEASER_CURRENT_TAG
"$goreleaser" release --clean $how
cp build/packages/* dist
