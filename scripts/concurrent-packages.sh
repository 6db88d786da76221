#!/usr/bin/env bash
# Prints the packages that "make race" tests: those whose code starts goroutines or keeps
# memory for several of them. Arithmetic takes ten times as long under the race detector,
# which finds nothing in it. So packages that measure, attack and mutate are left out, and
# those that make and execute GPU kernels, or that are modules of their own.
#
# With --used it prints the others whose tests use a value in several goroutines at once.
# Those tests have Concurrent or AtOnce in their names.
set -euo pipefail
cd "$(dirname "$0")/.."

# folders PATTERN OPTION... prints the folders with files that match; the options of grep
# choose the files.
folders() {
	local pattern=$1
	shift
	{ grep -rlE "$@" "$pattern" internal cmd dynamo || true; } |
		{ grep -v /testdata/ || true; } | xargs -r -n1 dirname | sort -u | sed 's|^|./|'
}

concurrent() {
	folders '\bsync\.(Mutex|RWMutex|Cond|WaitGroup|Map)\b|\batomic\.|"golang.org/x/sync/|^[[:space:]]*go (func|[A-Za-z_.]+)\(' --include='*.go' --exclude='*_test.go' |
		grep -vE '^\./internal/(cuda/(kernels|module)|lab/(bench|gpucheck|attack|mutate|inferencesim|cuda/(emulator|compile|kerneltest)))$'
}

if [ "${1:-}" = --used ]; then
	comm -13 <(concurrent | sort -u) <(folders '^func Test[A-Za-z]*(Concurrent|AtOnce)' --include='*_test.go')
else
	concurrent
fi
