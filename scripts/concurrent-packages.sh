#!/usr/bin/env bash
# Prints the packages whose code starts goroutines or shares memory between them, without
# those that measure, attack and mutate, and those that make and execute GPU kernels: arithmetic takes ten
# times as long under the race detector, which finds nothing in it. The tests of whole
# commands, in internal/cli, run the goroutines of the packages below it.
set -euo pipefail
cd "$(dirname "$0")/.."

echo ./internal/cli
grep -rlE --include='*.go' --exclude='*_test.go' \
	'"sync(/atomic)?"|"golang.org/x/sync/|^[[:space:]]*go (func|[A-Za-z_.]+)\(' internal cmd 2>/dev/null |
	grep -v /testdata/ | xargs -n1 dirname | sort -u |
	grep -vE '^internal/(cuda/(kernels|module)|lab/(bench|gpucheck|attack|mutate|cuda/(emulator|compile|kerneltest)))$' | sed 's|^|./|'
