#!/usr/bin/env bash
# Prints the packages whose code starts goroutines or shares memory between them.
set -euo pipefail
cd "$(dirname "$0")/.."

grep -rlE --include='*.go' --exclude='*_test.go' \
	'"sync(/atomic)?"|"golang.org/x/sync/|^[[:space:]]*go (func|[A-Za-z_.]+)\(' internal cmd 2>/dev/null |
	grep -v /testdata/ | xargs -n1 dirname | sort -u | sed 's|^|./|'
