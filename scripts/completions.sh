#!/usr/bin/env bash
# Writes the completion scripts of dynctl for all shells into a directory, for releases.
set -euo pipefail
mkdir -p "${1:?usage: $0 DIRECTORY}"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

dynctl=$(mktemp)
trap 'rm -f "$dynctl"' EXIT
CGO_ENABLED=0 go build -o "$dynctl" ./cmd/dynctl
"$dynctl" completion bash >"$out/dynctl.bash"
"$dynctl" completion zsh >"$out/_dynctl"
"$dynctl" completion fish >"$out/dynctl.fish"
"$dynctl" completion powershell >"$out/dynctl.ps1"
