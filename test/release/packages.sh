#!/bin/sh
# Packs the npm and the Python package into build/packages, each with the list of what it is
# built on, for the date given in seconds since 1970. It needs npm and Python with pip and venv.
set -eu
out=$PWD/build/packages
rm -rf "$out"
mkdir -p "$out"
npm --prefix sdk/typescript ci --prefer-offline --no-audit --no-fund --loglevel=error
(cd sdk/typescript && npm pack --loglevel=error --pack-destination "$out" >/dev/null)
go -C test/release run ./sbom "$PWD/sdk/typescript/package-lock.json" "$out/lapsedb-lapse.cdx.json"

[ -x build/python/bin/hatchling ] || { python3 -m venv build/python && build/python/bin/pip install -q hatchling; }
(cd sdk/python && SOURCE_DATE_EPOCH=$1 ../../build/python/bin/hatchling build -d "$out" >/dev/null)
for wheel in "$out"/*.whl; do
  go -C test/release run ./sbom "$wheel" "$out/lapsedb.cdx.json"
done
