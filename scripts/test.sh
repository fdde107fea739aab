#!/usr/bin/env bash
# Every test, in the order that ends first: scripts/test.sh [flags of go test]
#
# The packages that hold times to bounds of a tenth, or give a real model all cores, go one at a time; all others go two at a time.
# `go test ./...` runs the same tests; on a machine of few cores, packages side by side then spoil each other's times.
# Tests whose program is not installed skip with a line; under TRANCHE_CI=1 they fail.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

alone=(tranche/cmd/tranche tranche/inference tranche/internal/interop)
# The longest begin first, so that two ends meet.
longest=(tranche/storage tranche/action/sandbox/sandboxtest)

others=$(go list ./... | grep -vxF "$(printf '%s\n' "${alone[@]}" "${longest[@]}")") || exit 1
status=0
go test -p=2 -timeout=30m "$@" "${longest[@]}" $others || status=1
# Their tests that run side by side mostly wait, so twice as many as there are cores may; those that hold times run before these, one by one.
go test -p=1 -parallel=$((2 * $(nproc))) -timeout=30m "$@" "${alone[@]}" || status=1
exit "$status"
