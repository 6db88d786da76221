#!/usr/bin/env bash
# Makes the pictures of docs/top.md from the recording docs/top/run.jsonl, which a real
# cluster under a small load was recorded to:
#   dynctl top --record docs/top/run.jsonl --samples 4
set -euo pipefail
cd "$(dirname "$0")/.."

screen() { # name, then further flags
	local name=$1
	shift
	env TERM=xterm-256color COLORTERM= go run ./cmd/dynctl top --replay docs/top/run.jsonl --at 1h --color always --theme dark "$@" |
		go run ./scripts/screenshot > "docs/top/$name.svg"
}

screen dashboard --size 100x30
