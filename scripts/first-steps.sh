#!/usr/bin/env bash
# Does what docs/first-steps.md and docs/production.md say about two hosts, which are network
# namespaces: first-steps.sh DIR GGUF, with dynctl and dynamod in DIR and a GGUF file for the
# recipe of another model. Exit code 77: not here.
set -euo pipefail
bin=$1 gguf=$2
while read -r name; do unset "$name"; done < <(compgen -e | grep -E "^(DYN|ETCD|NATS)") # settings of the programs
command -v ip >/dev/null || { echo "there is no ip"; exit 77; }
ip netns add "dyn1-$$" 2>/dev/null || { echo "no network namespaces here"; exit 77; }
work=$(mktemp -d)
pids=()
clean() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	wait
	ip netns del "dyn1-$$" 2>/dev/null || true
	ip netns del "dyn2-$$" 2>/dev/null || true
	rm -rf "$work"
}
trap clean EXIT
fail() { echo "$@"; tail -n 20 "$work"/*.log; exit 1; }
# host N COMMAND... runs a command on a host, with a state directory of its own.
host() { local n=$1; shift; ip netns exec "dyn$n-$$" env XDG_STATE_HOME="$work/$n" "$@"; }

ip netns add "dyn2-$$"
ip link add hosta netns "dyn1-$$" type veth peer name hostb netns "dyn2-$$"
for n in 1 2; do
	ip -n "dyn$n-$$" link set lo up
	mkdir "$work/$n"
done
ip -n "dyn1-$$" addr add 10.0.0.5/24 dev hosta
ip -n "dyn2-$$" addr add 10.0.0.6/24 dev hostb
ip -n "dyn1-$$" link set hosta up
ip -n "dyn2-$$" link set hostb up

# node N FLAGS... starts the dynamod of a host, which is then the last of pids.
node() {
	local n=$1
	shift
	ip netns exec "dyn$n-$$" env XDG_STATE_HOME="$work/$n" "$bin/dynamod" --node-name "host-$n" "$@" >"$work/host-$n.log" 2>&1 &
	pids+=($!)
}
node 1 --node-advertise-host 10.0.0.5
for _ in $(seq 100); do
	token=$(host 1 "$bin/dynctl" credentials --join 2>/dev/null) && break
	sleep 0.2
done
[ -n "${token:-}" ] || fail "no token"

# Without the flag, others are told an address at which this node cannot be reached.
join() {
	DYNAMOD_JOIN=$token node 2 "$@"
	for _ in $(seq 100); do
		nodes=$(host 1 "$bin/dynctl" get nodes -q 2>/dev/null) && grep -q host-2 <<<"$nodes" && return
		sleep 0.2
	done
	fail "host-2 did not come"
}
join
host 1 "$bin/dynctl" doctor -o json >"$work/doctor.log" 2>&1 || true # it fails, as it should
grep -q 'node-advertise-host ADDRESS on host-2' "$work/doctor.log" || fail "doctor does not name node and flag"
grep -q 'set --node-advertise-host' "$work"/2/dynctl/local/host-2/logs/dynamod.log || fail "dynamod does not warn"
kill "${pids[-1]}"
wait "${pids[-1]}" || true
join --node-advertise-host 10.0.0.6

host 2 "$bin/dynctl" up --prefill 2 --decode 4 >"$work/up.log" 2>&1 || fail "up failed"
answer=$(host 2 "$bin/dynctl" chat --url http://127.0.0.1:8000 "What is a KV block?")
grep -q "keys and values" <<<"$answer" || fail "answer: $answer"
host 1 "$bin/dynctl" doctor >"$work/doctor.log" 2>&1 || fail "doctor found a fault"
grep -E "paths.ok.*over tcp" "$work/doctor.log" >/dev/null || fail "no path over the network"

# The ports that docs/production.md has.
for n in 1 2; do
	listens=$(host "$n" ss -ltnH | awk '{ print $4 }')
	for port in 7370 7372 7373 7374; do
		grep -qx "10.0.0.$((n + 4)):$port" <<<"$listens" || fail "host-$n does not listen at $port: $listens"
	done
	grep -qx "127.0.0.1:7371" <<<"$listens" || fail "the status server of host-$n is elsewhere: $listens"
done

# Another model, a GGUF file at the same path on both hosts: the old one answers until it serves.
new=$(basename "$gguf" .gguf)
model() { host 1 "$bin/dynctl" chat --url http://127.0.0.1:8000 --model "$1" --max-tokens 4 --timeout 20s hello >>"$work/chat.log" 2>&1; }
(while [ ! -e "$work/rolled" ]; do model dynctl-tiny || model "$new" || echo "no answer" >>"$work/chat.log"; done) &
asking=$!
pids+=("$asking")
host 2 "$bin/dynctl" up --model "$gguf" --prefill 1 --decode 1 --yes >"$work/up.log" 2>&1 || fail "no roll to the GGUF file"
touch "$work/rolled"
wait "$asking"
grep -q "no answer" "$work/chat.log" && fail "a request failed while the model changed"
model "$new" || fail "the GGUF file does not answer"
host 2 "$bin/dynctl" get workers -o json | grep -q "\"model\": \"$new\"" || fail "the workers have another model"
host 1 "$bin/dynctl" doctor >"$work/doctor.log" 2>&1 || fail "doctor finds a fault with the GGUF file"

# Data are not deleted under nodes that go on.
host 1 "$bin/dynctl" down --purge --yes >"$work/purge.log" 2>&1 && fail "purged under host-2"
grep -q "host-2 cannot be stopped from here" "$work/purge.log" || fail "purge does not name host-2"
kill "${pids[2]}"
wait "${pids[2]}" || true
host 1 "$bin/dynctl" down --purge --yes >"$work/purge.log" 2>&1 || fail "purge failed"
[ -e "$work/1/dynctl/local" ] && fail "purge left the cluster's directory"
echo "two hosts work as written"
