#!/usr/bin/env bash
# Asks a real cluster by the clients that people use: the npm packages openai, ai and
# @langchain/openai, and the Go module openai-go, each of an exact version.
#
#   scripts/clients.sh [DIR]    DIR keeps the npm packages (default: a temporary folder)
#
# What cannot be installed is skipped with its reason; exits with 1 if a client finds a fault.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
packages=${1:-$work}/clients
export DYNCTL_STATE_DIR=$work/state DYNCTL_MODEL=dynctl-tiny
end() {
	if [ -d "$DYNCTL_STATE_DIR" ]; then
		timeout 60 "$work/dynctl" down --yes --quiet >"$work/down" 2>&1 || cat "$work/down"
	fi
	rm -rf "$work"
}
trap end EXIT

clients=()

# The packages are installed once for each lock file.
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
	echo "npm packages: skipped, no node or npm"
else
	mkdir -p "$packages"
	if ! cmp -s scripts/clients/package-lock.json "$packages/installed"; then
		cp scripts/clients/{package.json,package-lock.json,.npmrc} "$packages"
		if (cd "$packages" && timeout 120 npm ci --loglevel=error >npm.log 2>&1); then
			cp scripts/clients/package-lock.json "$packages/installed"
		fi
	fi
	if cmp -s scripts/clients/package-lock.json "$packages/installed"; then
		cp scripts/clients/*.mjs "$packages"
		clients+=(openai ai langchain)
	else
		echo "npm packages: skipped, not reachable: $(tail -n 1 "$packages/npm.log")"
	fi
fi
if (cd scripts/clients/openai-go && timeout 120 go mod download >"$work/go.log" 2>&1); then
	(cd scripts/clients/openai-go && go build -o "$work/openai-go" .)
	clients+=(openai-go)
else
	echo "openai-go: skipped, not reachable: $(tail -n 1 "$work/go.log")"
fi
if [ ${#clients[@]} -eq 0 ]; then
	exit 0
fi

go build -o "$work/" ./cmd/dynctl ./cmd/dynamod
timeout 120 "$work/dynctl" up --prefill 1 --decode 1 --port 0 --progress quiet >"$work/up" 2>"$work/up.err" || {
	cat "$work/up.err"
	exit 1
}
DYNCTL_URL=$(grep -m 1 -o 'http://[^ ]*' "$work/up")
export DYNCTL_URL

code=0
for client in "${clients[@]}"; do
	echo "$client"
	if [ "$client" = openai-go ]; then
		timeout 90 "$work/openai-go" || code=1
	else
		(cd "$packages" && timeout 90 node "$client.mjs") || code=1
	fi
done
exit "$code"
