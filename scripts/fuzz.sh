#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time (default 30s), and compares with
# other programs over fresh random inputs. A failing input is left in the package's
# testdata/fuzz, where go test finds it again; of the others the seed is printed.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzztime=${1:-30s}
ran=0
for dir in $(grep -rlE --include='*_test.go' '^func Fuzz' internal cmd dynamo 2>/dev/null | xargs -n1 dirname | sort -u); do
	for target in $(go test -list '^Fuzz' "./$dir" | grep '^Fuzz' || true); do
		echo "== $dir $target"
		# Without a limit, minimizing a new input can eat the whole time.
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" -fuzzminimizetime 1s "./$dir"
		ran=$((ran + 1))
	done
done
# What other programs make of random templates and texts.
for dir in internal/jinja internal/tokenizer; do
	echo "== $dir TestOracle"
	go test -count=20 -run '^TestOracle$' "./$dir" -oracle.seed=0
done
if [ "$ran" -eq 0 ]; then
	echo "no fuzz targets found" >&2
	exit 1
fi
