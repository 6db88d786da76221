#!/usr/bin/env bash
# Proves and measures the CUDA kernels on another machine, which has a GPU and NVIDIA's
# driver, but perhaps neither Go nor a network.
#
#   scripts/gpu-check.sh pack [FILE]     here: everything in one archive (bin/gpu-check.tar.gz)
#   ./gpu-check.sh run [FOLDER]          there, in the unpacked folder: all phases, into results
#   ./gpu-check.sh report [FOLDER]       the summary of what there is
#
# run goes on where it was stopped: what has a result is not run again. Where python3 has
# PyTorch with CUDA, that computes the same shapes for comparison. It takes eight minutes at
# most, with what says most first; BUDGET sets other seconds. KERNEL_DIR names a folder of edited kernel sources, such
# as src beside this script, which NVRTC compiles there; DEFINE their macros (A=1,B=2), NVRTC
# its library where the system does not find it. DYNLAB names the program, where it is not
# beside the script; OPTIONS are further flags of dynlab gpu-check, such as --pretend or
# --case compare/gemv; GPU is the index of another device than the first.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

die() { echo "gpu-check.sh: $*" >&2; exit 2; }

pack() {
	local archive top folder size
	top=$(cd "$here/.." && pwd)
	archive=${1:-$top/bin/gpu-check.tar.gz}
	[ -f "$top/go.mod" ] || die "pack runs in the sources of dynctl"
	packing=$(mktemp -d)
	trap 'rm -rf "$packing"' EXIT
	folder=$packing/gpu-check
	mkdir -p "$folder/src"
	(cd "$top" && CGO_ENABLED=0 GOOS=linux GOARCH="${GOARCH:-amd64}" go build -buildvcs=auto -trimpath -ldflags='-s -w' -o "$folder/dynlab" ./cmd/dynlab)
	cp "$here/gpu-check.sh" "$here/gpu-check-torch.py" "$folder/"
	cp "$top"/internal/cuda/kernels/src/*.cu "$top"/internal/cuda/kernels/src/*.h "$folder/src/"
	mkdir -p "$(dirname "$archive")"
	tar -C "$packing" -czf "$archive" gpu-check
	size=$(stat -c %s "$archive")
	echo "$archive: $((size / 1000000)) MB; unpack it on the machine with the GPU and run ./gpu-check/gpu-check.sh run"
	if [ "$size" -gt 60000000 ]; then
		echo "it is larger than 60 MB" >&2
	fi
}

# program finds dynlab.
program() {
	dynlab=${DYNLAB:-$here/dynlab}
	if [ ! -x "$dynlab" ]; then
		die "no program at $dynlab: run this in the folder that pack made, or set DYNLAB"
	fi
}

# left is how many seconds there are, for a step that takes so many at most.
left() {
	local n=$((end - $(date +%s)))
	echo $((n < $1 ? n : $1))
}

# phases SECONDS NAMES runs phases; what goes wrong is in the results.
phases() {
	local seconds
	seconds=$(left "$1")
	if [ "$seconds" -lt 5 ]; then
		echo "no time for $2; run again to go on"
		code=1
		return
	fi
	# The program ends by itself; a driver that holds it is left to timeout.
	timeout -k 10 $((seconds + 20)) "$dynlab" gpu-check --out "$out" --phase "$2" --time "${seconds}s" "${options[@]}" >"$out/last.txt" || code=1
}

torch() {
	local seconds
	seconds=$(left "$1")
	if [ "$seconds" -lt 5 ] || ! command -v python3 >/dev/null; then
		return 0
	fi
	timeout -k 10 "$seconds" python3 "$here/gpu-check-torch.py" "$out" "$out/shapes.jsonl" "$2" || true # it is a comparison only
}

# serving SECONDS serves over HTTP with a prefill and a decode worker on the GPU, in one
# process and in two, beside two workers that do both.
serving() {
	local seconds
	seconds=$(left "$1")
	if [ "$seconds" -lt 30 ] || [ -s "$out/disagg.md" ] || [[ " ${options[*]} " == *" --pretend "* ]]; then
		return 0
	fi
	DYNAMOD_STATE_DIR=$(realpath "$out")/state timeout -k 10 "$seconds" "$dynlab" bench disagg --quick --gpus "${GPU:-0}" --write "$out/disagg.md" || code=1
	rm -rf "$out/state"
}

run() {
	out=${1:-results} code=0
	end=$(($(date +%s) + ${BUDGET:-480}))
	program
	mkdir -p "$out"
	read -ra options <<<"${OPTIONS:-}"
	[ -z "${GPU:-}" ] || options+=(--device "$GPU")
	if [ -n "${KERNEL_DIR:-}" ]; then
		options+=(--kernels "$KERNEL_DIR")
		[ -z "${DEFINE:-}" ] || options+=(--define "$DEFINE")
		[ -z "${NVRTC:-}" ] || options+=(--nvrtc "$NVRTC")
	fi
	if command -v nvidia-smi >/dev/null; then
		timeout 20 nvidia-smi -q >"$out/nvidia-smi.txt" 2>&1 || echo "nvidia-smi does not answer; see $out/nvidia-smi.txt"
	fi
	"$dynlab" gpu-check --shapes >"$out/shapes.jsonl"
	phases 90 smoke
	if [ "$code" -ne 0 ] && ! [ -s "$out/results.jsonl" ]; then
		die "nothing can be checked here"
	fi
	# First whether it is right: each kernel in its smallest shapes, a prompt and an answer of the
	# engine, then the other shapes. Then how fast it is.
	phases 60 compare
	phases 40 answers
	phases 120 compare
	phases 20 ipc
	phases 30 floor
	torch 30 floor
	phases 120 measure
	phases 120 engine
	phases 40 golden
	serving 90
	torch 60 shapes
	phases 120 tune
	report "$out"
	return "$code"
}

report() {
	out=${1:-results}
	program
	"$dynlab" gpu-check --out "$out" --report
	rm -f "$out/last.txt"
}

case "${1:-}" in
pack) pack "${2:-}" ;;
run) run "${2:-}" ;;
report) report "${2:-}" ;;
*) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
