#!/usr/bin/env bash
# Says how close a simulation comes to a real cluster of this machine, with the built-in model:
# accuracy.sh DIR [TOPOLOGY [SECONDS [RATE]]], with dynctl, dynamod and dynlab in DIR and a topology file,
# one aggregated worker without it. One load teaches the cluster how fast its workers are, another one is
# measured and simulated. The machine must be quiet. Its workers share its cores, in turns.
set -euo pipefail
bin=$(realpath "$1") topology=${2:+$(realpath "$2")} seconds=${3:-300} rate=${4:-2}
while read -r name; do unset "$name"; done < <(compgen -e | grep -E "^(DYN|ETCD|NATS)") # settings of the programs
work=$(mktemp -d)
ctl() { "$bin/dynctl" --state-dir "$work/state" --cluster accuracy "$@"; }
clean() {
	ctl down --deadline 0 --yes >"$work/down.log" 2>&1 || cat "$work/down.log"
	rm -rf "$work"
}
trap clean EXIT
cd "$work"
if [ -z "$topology" ]; then
	printf 'decode: 1\nengine: {kv_blocks: 512}\n' >aggregated.yaml
	topology=$work/aggregated.yaml
fi

ctl up -f "$topology" --port 0 -q
# Lengths that differ much, and rates that do: windows in which all is alike teach little.
ctl bench --sine "0.2:$(awk "BEGIN{print 2*$rate}"):${seconds}s" --isl uniform:64:1500 --osl uniform:8:128 --seed 1 -q
ctl get profile --save profile.json
ctl bench --rate "$rate" --duration "${seconds}s" --isl uniform:200:1200 --osl uniform:16:64 --seed 2 --save run.json -q >/dev/null
ctl get trace --since "$((seconds + 20))s" --save trace.jsonl
ctl get topology -o yaml >topology.yaml
"$bin/dynlab" accuracy --report run.json --trace trace.jsonl --profile profile.json -f topology.yaml --shared-devices 1
