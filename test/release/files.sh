#!/bin/sh
# Makes what a release has besides binaries, into build: man pages and completions, of the
# version, commit and date given.
set -eu
rm -rf build/man build/completions
mkdir -p build/man build/completions
CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$1 -X main.commit=$2 -X main.date=$3" -o build/lapse ./cmd/lapse
build/lapse man build/man
for page in build/man/*.1; do gzip -9nc "$page" >"$page.gz"; done
build/lapse completion bash >build/completions/lapse.bash
build/lapse completion fish >build/completions/lapse.fish
build/lapse completion zsh >build/completions/_lapse
build/lapse completion powershell >build/completions/lapse.ps1
