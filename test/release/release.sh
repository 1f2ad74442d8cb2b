#!/bin/sh
# Builds a release into dist, without a network: of the tag of the checkout, or else a
# snapshot of the version that CHANGELOG.md names first.
set -eu
goreleaser=$(go -C test/release tool -n goreleaser)
if ! git ls-remote --get-url >/dev/null 2>&1; then # goreleaser wants a remote
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/lapsedb/lapse
fi
if git describe --exact-match --tags >/dev/null 2>&1; then
  exec "$goreleaser" release --clean --skip=publish
fi
GORELEASER_CURRENT_TAG=v$(sed -nE 's/^## \[?([0-9]+\.[0-9]+\.[0-9]+).*/\1/p' CHANGELOG.md | head -n 1)
export GORELEASER_CURRENT_TAG
exec "$goreleaser" release --snapshot --clean
