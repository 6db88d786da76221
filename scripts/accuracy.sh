#!/usr/bin/env bash
# Says how close a simulation comes to a real cluster of this machine, with the built-in model:
# accuracy.sh DIR [TOPOLOGY [SECONDS [RATE]]], with dynctl, dynamod and dynlab in DIR and a topology file,
# one aggregated worker without it. A worker is profiled, a load is measured and simulated, and the worker is
# profiled again: where the two profiles give different figures, the machine changed its speed meanwhile.
# The machine must be quiet. Its workers share its cores, in turns.
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
ctl profile --save before.json -q >/dev/null
ctl bench --rate "$rate" --duration "${seconds}s" --isl uniform:200:1200 --osl uniform:16:64 --seed 2 --save run.json -q >/dev/null
ctl get trace --since "$((seconds + 20))s" --save trace.jsonl
ctl get topology -o yaml >topology.yaml
ctl profile --save after.json -q >/dev/null
for profile in before after; do
	printf '\nWith the profile from %s the load:\n\n' "$profile"
	"$bin/dynlab" accuracy --report run.json --trace trace.jsonl --profile $profile.json -f topology.yaml --shared-devices 1
done
