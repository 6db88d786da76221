#!/usr/bin/env bash
# Writes the completion scripts of dynctl and dynamod for all shells into a directory, for releases.
set -euo pipefail
mkdir -p "${1:?usage: $0 DIRECTORY}"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
for program in dynctl dynamod; do
	CGO_ENABLED=0 go build -o "$bin/$program" "./cmd/$program"
	"$bin/$program" completion bash >"$out/$program.bash"
	"$bin/$program" completion zsh >"$out/_$program"
	"$bin/$program" completion fish >"$out/$program.fish"
	"$bin/$program" completion powershell >"$out/$program.ps1"
done
