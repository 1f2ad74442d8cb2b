#!/bin/sh
# Builds the image lapse: the binary here, then deploy/Dockerfile, which copies it.
#
#   IMAGE=lapse:0.4.0 ARCH=arm64 DOCKER=podman deploy/image.sh
set -eu
cd "$(dirname "$0")/.."
GOTOOLCHAIN=$(sed -n 's/^toolchain //p' test/release/go.mod) # as the release
export GOTOOLCHAIN
arch=${ARCH:-$(go env GOARCH)}
rm -rf build/image
mkdir -p build/image/data
# Without cgo the binary needs no libraries; Pebble's block cache and memtables are on Go's
# heap then, within the limit that lapse sets itself.
CGO_ENABLED=0 GOOS=linux GOARCH="$arch" go build -trimpath -ldflags="-s -w" -o build/image/lapse ./cmd/lapse
for certificates in "${CA_CERTIFICATES:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
  [ -f "$certificates" ] && break
done
cp -L "$certificates" build/image/ca-certificates.crt || { echo "give the CA certificates of the image in CA_CERTIFICATES" >&2; exit 1; }
# The legacy builder knows the engine's own architecture only.
platform=
if [ -n "${ARCH:-}" ]; then
  platform="--platform linux/$arch"
  export DOCKER_BUILDKIT=1
fi
"${DOCKER:-docker}" build --file deploy/Dockerfile --tag "${IMAGE:-lapse}" $platform \
  --build-arg VERSION="$(git describe --tags --always --dirty)" --build-arg REVISION="$(git rev-parse HEAD)" \
  --build-arg CREATED="$(git log -1 --format=%cI)" .
