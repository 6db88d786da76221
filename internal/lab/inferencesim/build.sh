#!/bin/sh
# Builds llm-d-inference-sim at the given path, unless it is there already. Exits with 75 if
# its modules cannot be fetched.
#
# Of the packages that the simulator links, only those are compiled that it uses when it
# serves: not what helps with its own tests (testcontainers, Ginkgo), not the stores that
# llm-d has for its index of blocks (Redis, Kubernetes), not SQLite, which --dataset-path
# needs. That is a quarter of the work.
set -eu
out=$(realpath -m "${1:?usage: build.sh FILE}")
cd "$(dirname "$0")"
from=$(cat go.mod go.sum main.go build.sh | sha256sum)
if [ -x "$out" ] && [ "$(cat "$out.from" 2>/dev/null)" = "$from" ]; then
	exit 0
fi
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cp go.mod go.sum main.go "$tree"
cd "$tree"
go mod vendor || exit 75

sim=vendor/github.com/llm-d/llm-d-inference-sim/pkg
rm "$sim/tokenizer/test_utils.go" "$sim/common/test_utils.go" "$sim/kv-cache/kv_test_helper.go"
sed -i '/_ "modernc.org\/sqlite"/d' "$sim/dataset/dataset.go"
cache=vendor/github.com/llm-d/llm-d-kv-cache/pkg
(cd "$cache/kvevents" && rm pool.go subscriber_manager.go zmq_subscriber.go)
cd "$cache/kvcache/kvblock"
{ echo 'package kvblock' && grep -E '^(type|const) .*\bBlockHash\b' index.go; } >block_hash.go
rm index.go in_memory.go cost_aware_memory.go redis.go instrumented_index.go traced_index.go
cd "$tree"
rm vendor/sigs.k8s.io/controller-runtime/pkg/log/warning_handler.go

mkdir -p "$(dirname "$out")"
rm -f "$out.from"
CGO_ENABLED=0 nice go build -mod=vendor -ldflags='-s -w' -o "$out" .
echo "$from" >"$out.from"
