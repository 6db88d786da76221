#!/usr/bin/env bash
# Two hosts on one machine: network namespaces with a cable between them. The first
# runs etcd, NATS and a prefill worker, the second a decode worker and the frontend,
# as two dynamod processes. Both strategies of disaggregation serve over a network
# that is good, slow, narrow, lossy, or cut in the middle of answers; no client may see
# an error, and every answer must be the one that the decode worker gives alone.
#
#   scripts/two-hosts.sh DIR    DIR holds dynamod, dynctl and cable
#
# Needs root, ip and curl; exits with 77 and says why where it cannot run. Where the kernel
# has no netem, cable delays and loses packets; what needs another queueing discipline
# that is missing is left out by name.
# Every address lies inside the namespaces, which are gone when it ends.
set -euo pipefail
unset DYNCTL_TWO_HOSTS # for the test that runs this script, and no setting of the programs

bin=$(cd "${1:?usage: scripts/two-hosts.sh DIR}" && pwd)
a=dynctl-$$-a b=dynctl-$$-b
url=http://127.0.0.1:8000
lease=5        # seconds until a silent worker counts as gone
timeout=4      # seconds that a decode worker waits for a remote prefill
patience=60    # seconds within which every request must be answered, whatever happens; see pace
stopping=30    # seconds within which a dynamod that is asked to end has ended, its peer out of reach
failures=0
dir=
pids=()

unable() { echo "skipped: $*"; exit 77; }
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
logs() {
	local log
	for log in "$dir"/[ab].log "$dir"/[ab]/local/[ab]/logs/dynamod.log; do
		if [ -s "$log" ]; then
			echo "== ${log#"$dir"/}"
			tail -n 25 "$log" | cut -c 1-300
		fi
	done
}
die() {
	echo "FAILED: $*"
	logs
	exit 1
}

cleanup() {
	local pid
	trap - EXIT
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	within "$stopping" stopped "${pids[@]}" || kill -9 "${pids[@]}" 2>/dev/null || true
	wait
	ip netns del "$a" 2>/dev/null || true
	ip netns del "$b" 2>/dev/null || true
	[ -z "$dir" ] || rm -rf "$dir"
}
stopped() {
	local pid
	for pid; do ! kill -0 "$pid" 2>/dev/null || return 1; done
}

# within SECONDS COMMAND... repeats a command until it succeeds.
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.1
	done
}

on() { local host=$1; shift; ip netns exec "$host" "$@"; }
dynctl() { on "$b" timeout 60 "$bin/dynctl" "$@"; }

# start_host NAMESPACE NAME FLAGS... runs dynamod there.
start_host() {
	local ns=$1 name=$2
	shift 2
	# Instructions that every machine has are slow, so that answers last long enough to
	# be disturbed.
	ip netns exec "$ns" "$bin/dynamod" --node-name "$name" --state-dir "$dir/$name" --cpu-cores 1 --cpu-isa portable \
		--etcd-lease-ttl "${lease}s" --disagg-conditional threshold --disagg-max-local-prefill-tokens 0 --disagg-remote-prefill-timeout "${timeout}s" \
		--drain-deadline 2s "$@" >"$dir/$name.log" 2>&1 &
	pids+=($!)
}

both_nodes() { [ "$(dynctl ps --nodes -o name 2>/dev/null | wc -l)" -eq 2 ]; }
token() { (umask 077 && on "$a" "$bin/dynctl" --state-dir "$dir/a" credentials --join --quiet >"$dir/token" 2>/dev/null); }
listening() { on "$b" timeout 1 bash -c '</dev/tcp/10.213.0.1/4222' 2>/dev/null; }

# prompt SEED WORDS prints a prompt that begins like no other.
prompt() {
	local seed=$1 n=$2 list=(block worker cache prefill decode token lease queue router node) i
	printf 'request %s:' "$seed"
	for ((i = 0; i < n; i++)); do printf ' %s' "${list[(i * (seed % 89 + 3) + seed / 7 + i / 10) % 10]}"; done
}

# ask FILE SEED WORDS TOKENS [SECONDS] writes the events of an answer into a file.
ask() {
	on "$b" curl -sSN --max-time "${5:-$patience}" -H 'Content-Type: application/json' -o "$1" "$url/v1/completions" -d '{"model":"dynctl-tiny",
		"prompt":"'"$(prompt "$2" "$3")"'","max_tokens":'"$4"',"temperature":0,"ignore_eos":true,"stream":true}' 2>"$1.err" || true
}

# text prints what an answer says, or fails if it is not complete.
text() {
	grep -q '^data: \[DONE\]' "$1" && ! grep -q '^data: {"error"' "$1" || return 1
	sed -nE 's/^.*"text":"(([^"\\]|\\.)*)".*$/\1/p' "$1" | tr -d '\n'
}

# prefills PATTERN counts the prompts that the decode worker got in some way.
prefills() {
	on "$b" curl -sS --max-time 5 http://127.0.0.1:9090/metrics 2>/dev/null |
		awk -v want="$1" '/^dynamo_component_prefill_total/ && $0 ~ want { n += $NF } END { print n + 0 }'
}

probe=900000
# served PATTERN sends a prompt and succeeds if it was prefilled in that way.
served() {
	local before
	before=$(prefills "$1")
	probe=$((probe + 1))
	ask "$dir/probe" "$probe" 30 1
	[ "$(prefills "$1")" -gt "$before" ]
}

# strategy NAME makes the cluster use it.
strategy() {
	dynctl set "disagg.strategy=$1" >/dev/null
	within "$patience" served "${ways[$1]}" || die "no prompt is prefilled by strategy $1"
}
declare -A ways=([queue]='way="queue".*where="remote"' [router]='way="background".*where="remote"')

asked=() # "name seed words tokens" of all answers, to be compared in the end
seed=0
# batch NAME COUNT TOKENS starts requests and adds their processes to clients.
batch() {
	local i words
	for ((i = 0; i < $2; i++)); do
		seed=$((seed + 1)) words=$((40 + i * 45))
		ask "$dir/answer-$seed" "$seed" "$words" "$3" &
		clients+=($!)
		asked+=("$1 $seed $words $3")
	done
}

begun() { # all of the newest COUNT answers have text
	local i
	for ((i = 0; i < $1; i++)); do grep -q '"text"' "$dir/answer-$((seed - i))" 2>/dev/null || return 1; done
}

over() { # all of the newest COUNT answers are complete
	local i
	for ((i = 0; i < $1; i++)); do grep -q '^data: \[DONE\]' "$dir/answer-$((seed - i))" || return 1; done
}

# calm NAME STRATEGY runs requests while the network stays as it is.
calm() {
	local name="$1, $2" before begin=$SECONDS clients=() n
	before=$(prefills "${ways[$2]}")
	batch "${name// /_}" 6 40
	wait "${clients[@]}"
	n=$(($(prefills "${ways[$2]}") - before))
	echo "$name: 6 answers in $((SECONDS - begin)) s, $n prompts prefilled by the other host"
	[ "$n" -gt 0 ] || fail "$name: no prompt was prefilled by the other host"
}

# pace sets long to the tokens of an answer that lasts through the longest cut, on this
# machine, and patience to all limits together and thrice what it takes undisturbed.
pace() {
	local begin=${EPOCHREALTIME/./} clients=() tokens=200
	batch pace 4 "$tokens"
	wait "${clients[@]}"
	long=$((tokens * (lease + 6) * 1000000 / (${EPOCHREALTIME/./} - begin)))
	long=$((long < tokens ? tokens : long > 3000 ? 3000 : long))
	local took=$(((${EPOCHREALTIME/./} - begin) / 1000))
	patience=$((lease + 2 + lease + timeout + 3 * took * long / tokens / 1000 + 5))
	echo "$tokens tokens in $took ms: answers through a cut have $long tokens, and $patience s"
}

# halt NAME PID asks a dynamod to end and waits for that.
halt() {
	local begin=$SECONDS
	kill "$2"
	within "$stopping" stopped "$2" || die "$1 does not end within $stopping s"
	echo "$1 ended in $((SECONDS - begin)) s"
}

# sever SECONDS STRATEGY TOKENS takes the cable away while answers of so many tokens
# run, and asks for more.
sever() {
	local name="cut for $1 s, $2" begin=$SECONDS clients=()
	batch "${name// /_}" 4 "$3"
	within "$patience" begun 4 || fail "$name: no answers before the cut"
	ip -n "$a" link set wire down
	! over 4 || fail "$name: the answers were over before the cut"
	batch "${name// /_}" 4 40
	sleep "$1" # the length of the cut
	ip -n "$a" link set wire up
	wait "${clients[@]}"
	echo "$name: 8 answers in $((SECONDS - begin)) s"
}

# fresh starts a new decode worker without any KV, on the host where it belongs.
fresh() {
	dynctl scale --prefill 0 --decode 0 --timeout 20s --quiet >/dev/null 2>"$dir/scale" && dynctl scale --prefill 1 --decode 1 --timeout 20s --quiet >/dev/null 2>>"$dir/scale" ||
		die "the decode worker does not start anew: $(cat "$dir/scale")"
}

# shape KIND ARGUMENTS... sets the queueing discipline at both ends of the cable.
shape() { on "$a" tc qdisc replace dev wire root "$@" 2>/dev/null && on "$b" tc qdisc replace dev wire root "$@" 2>/dev/null; }
unshape() {
	on "$a" tc qdisc del dev wire root 2>/dev/null || true
	on "$b" tc qdisc del dev wire root 2>/dev/null || true
}

# relay FLAGS... has a program carry the packets between the hosts, which delays or loses
# some; unrelay ends that. Connections go on: addresses stay, routes change.
cable=
relay() {
	local host
	[ -x "$bin/cable" ] && [ -c /dev/net/tun ] || return 1
	"$bin/cable" -a "$a" -b "$b" -device relay "$@" >"$dir/cable" 2>"$dir/cable.log" &
	cable=$!
	pids+=("$cable")
	within 5 relay_made || return 1
	for host in "$a" "$b"; do ip -n "$host" link set relay up; done
	ip -n "$a" route replace 10.213.0.2/32 dev relay src 10.213.0.1
	ip -n "$b" route replace 10.213.0.1/32 dev relay src 10.213.0.2
}
relay_made() { ip -n "$a" link show relay >/dev/null 2>&1 && ip -n "$b" link show relay >/dev/null 2>&1; }
unrelay() {
	[ -n "$cable" ] || return 0
	kill "$cable" 2>/dev/null || true # the devices go with it, and their routes
	wait "$cable" 2>/dev/null || true
	cable=
	echo "  the relay carried $(cat "$dir/cable")"
	[ "$(awk '{ print $1 }' "$dir/cable")" -gt 50 ] || fail "the relay carried next to nothing: $(cat "$dir/cable.log")"
}

# bad NAME STRATEGY DISCIPLINE -- FLAGS has calm run over a network that the kernel makes
# bad by a queueing discipline, or a relay.
bad() {
	local name=$1 s=$2 discipline=()
	shift 2
	while [ "$1" != -- ]; do discipline+=("$1"); shift; done
	shift
	if command -v tc >/dev/null && shape "${discipline[@]}"; then
		calm "$name" "$s"
	elif [ $# -gt 0 ] && relay "$@"; then
		calm "$name by a relay" "$s"
	else
		echo "left out: $name: the kernel has no ${discipline[0]}"
	fi
	unshape
	unrelay
}

[ "$(uname)" = Linux ] || unable "network namespaces are those of Linux"
[ "$(id -u)" -eq 0 ] || unable "network namespaces need root"
for program in ip curl timeout awk; do
	command -v "$program" >/dev/null || unable "no $program"
done
trap cleanup EXIT
trap 'exit 1' INT TERM
ip netns add "$a" 2>/dev/null && ip netns add "$b" 2>/dev/null || unable "this process may not make network namespaces"
ip -n "$a" link add wire type veth peer name wire netns "$b" 2>/dev/null || unable "the kernel has no veth devices"
ip -n "$a" addr add 10.213.0.1/24 dev wire
ip -n "$b" addr add 10.213.0.2/24 dev wire
for host in "$a" "$b"; do
	ip -n "$host" link set lo up
	ip -n "$host" link set wire up
done

dir=$(mktemp -d)
export HOME=$dir DYNCTL_STATE_DIR=$dir/b # of the host that dynctl runs on
start_host "$a" a --node-advertise-host 10.213.0.1 --node-roles prefill --frontend-enabled=false
within 20 token || die "the first host does not come up"
listening || die "NATS of the first host is not where the second one looks for it"
start_host "$b" b --node-advertise-host 10.213.0.2 --node-roles decode --frontend-port 8000 --status-listen 127.0.0.1:9090 \
	--join "$dir/token"
within 20 both_nodes || die "the second host does not come up"
dynctl up --prefill 1 --decode 1 --kv-blocks 1024 --block-size 16 --timeout 30s --quiet >/dev/null 2>"$dir/up" || die "dynctl up: $(cat "$dir/up")"

for s in queue router; do
	strategy "$s"
	[ "$s" != queue ] || pace
	calm "good network" "$s"
	bad "50 ms each way" "$s" netem delay 50ms -- -delay 50ms
	bad "1 % loss" "$s" netem loss 1% -- -loss 0.01
	bad "100 Mbit/s" "$s" tbf rate 100mbit burst 64k latency 50ms --
	sever 2 "$s" "$long" # leases live on
	within "$patience" served "${ways[$s]}" || fail "cut for 2 s, $s: the hosts do not work together again"
	sever $((lease + 2)) "$s" "$long" # leases end, and the first host takes the decode worker over
	fresh
	within "$patience" served "${ways[$s]}" || fail "cut for $((lease + 2)) s, $s: the hosts do not work together again"
done

# The same prompts again, by a decode worker that has no KV yet and is asked for no
# remote prefill. How long that takes proves nothing.
dynctl set disagg.max_local_prefill_tokens=100000 >/dev/null
fresh
within "$patience" served 'where="local"' || die "the decode worker does not prefill for itself"
remote=$(prefills 'where="remote"')
for ((i = 0; i < ${#asked[@]}; i += 8)); do
	clients=()
	for one in "${asked[@]:i:8}"; do
		read -r name seed words tokens <<<"$one"
		ask "$dir/alone-$seed" "$seed" "$words" "$tokens" 120 &
		clients+=($!)
	done
	wait "${clients[@]}"
done
for one in "${asked[@]}"; do
	read -r name seed words tokens <<<"$one"
	want=$(text "$dir/alone-$seed") || die "no answer of the decode worker alone: $(tail -c 300 "$dir/alone-$seed") $(cat "$dir/alone-$seed.err")"
	if ! got=$(text "$dir/answer-$seed"); then
		fail "${name//_/ }: no complete answer to request $seed: $(tail -c 300 "$dir/answer-$seed" 2>/dev/null) $(cat "$dir/answer-$seed.err")"
	elif [ "$got" != "$want" ]; then
		fail "${name//_/ }: request $seed got another answer than the decode worker alone gives"
	fi
	echo "$want" | cksum >>"$dir/sums"
done
[ "$(prefills 'where="remote"')" -eq "$remote" ] || die "the answers to compare with were prefilled by the other host"
different=$(sort -u "$dir/sums" | wc -l)
[ "$different" -ge $((${#asked[@]} / 2)) ] || fail "only $different of ${#asked[@]} answers differ: the comparison says little"
echo "${#asked[@]} answers compared, $different different ones"

# An orderly end needs nobody else.
ip -n "$a" link set wire down
halt "the second host, without etcd and NATS," "${pids[1]}"
halt "the first host" "${pids[0]}"
if [ "$failures" -gt 0 ]; then
	logs
	exit 1
fi
