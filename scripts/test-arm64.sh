#!/usr/bin/env bash
# Tests the CPU kernels for arm64: on such a machine as they are, elsewhere under
# qemu-user (Debian: apt-get install qemu-user-static). There the models of
# TestLevelsAgree are computed on this machine, too, and must give the same bits.
#
#   scripts/test-arm64.sh [pattern]    tests of internal/engine/cpu to run, . for all:
#                                      many minutes
set -euo pipefail
cd "$(dirname "$0")/.."

pattern=${1:-'^(TestLevelsAgree|TestAgainstReference|TestApplyQuantized|TestKernelFaults|TestOpenDevice|TestKVTypes|TestApply|TestApplyBF16|TestBF16AgainstReference|TestDeviceActivations|TestExp|TestGELUs|TestVision|TestLevelsAgreeOnViews|TestVisionInBF16)$'}
# The emulator loses the address of a fault behind the end of a file.
lost='^TestShortenedWeights$'

if [ "$(uname -m)" = aarch64 ] || [ "$(uname -m)" = arm64 ]; then
	go test ./internal/engine/cpu/kernel/...
	exec go test -short -run "$pattern" ./internal/engine/cpu
fi
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || {
	echo "no qemu-aarch64: install qemu-user-static (Debian) or qemu-user" >&2
	exit 3
}

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
export CGO_ENABLED=0
GOOS=linux GOARCH=arm64 go vet ./internal/engine/cpu/...
GOOS=linux GOARCH=arm64 go test -c -o "$bin/" ./internal/engine/cpu/kernel ./internal/engine/cpu

inside() { (cd "$1" && shift && "$@"); } # tests read their testdata
# With all instructions, with SDOT but no later ones, and without it.
for cpu in max neoverse-n1 cortex-a72; do
	echo "== internal/engine/cpu/kernel, under $(basename "$emulator") as $cpu"
	QEMU_CPU=$cpu inside internal/engine/cpu/kernel "$emulator" "$bin/kernel.test" -test.v >"$bin/log" ||
		{ grep -vE '^ *=== ' "$bin/log"; exit 1; }
	grep -oE 'PASS: TestProduct(Blocks|BF16)/[a-z0-9]+' "$bin/log" | sort -u # the kernels it has
	tail -n 1 "$bin/log"
done
echo "== internal/engine/cpu, under $(basename "$emulator")"
inside internal/engine/cpu "$emulator" "$bin/cpu.test" -test.short -test.run "$pattern" -test.skip "$lost" -test.v >"$bin/log" ||
	{ grep -vE '^ *=== ' "$bin/log"; exit 1; }
grep -E '^(--- |PASS)' "$bin/log"

echo "== bits of this machine"
bits() { sed -n 's/.*: bits of //p' "$1" | sort -u; }
go test -count=1 -v -run '^TestLevelsAgree(OnViews)?$' ./internal/engine/cpu >"$bin/native"
if ! grep -q 'with kernels' "$bin/native"; then
	echo "skipped: it has no kernels"
elif [ -z "$(bits "$bin/log")" ]; then
	echo "skipped: the pattern leaves out TestLevelsAgree and TestLevelsAgreeOnViews"
else
	same='NR == FNR { seen[$1]; next } $1 in seen' # the models that the pattern includes
	diff <(awk -F": " "$same" <(bits "$bin/log") <(bits "$bin/native")) <(bits "$bin/log")
	echo "the same: $(bits "$bin/log" | grep -c 'with kernels') models, with and without kernels"
fi
