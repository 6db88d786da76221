package judge

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// slow is from where on a round trip to a store deserves a look.
const slow = 100 * time.Millisecond

// Store judges the answer of a store that is not etcd.
func Store(r client.Reply, kind, name string) Finding {
	what, look, faster := "files in "+name, "look at "+name+" and its file system", "a faster disk, or etcd"
	switch kind {
	case client.StoreNATS:
		what, look, faster = "NATS, bucket "+name, "look at NATS", "a faster disk or network for NATS"
	case client.StoreKubernetes:
		what, look, faster = "the Kubernetes API", "look at the API server and at the rights of this user", "an API server with less load"
	}
	switch {
	case r.Err != nil:
		return Bad(look+"; serving goes on, changes wait", "%v", r.Err)
	case r.RTT > slow:
		return poor(faster, "%s, answers in %s", what, human.Millis(r.RTT)).With("rtt_ms", human.Milliseconds(r.RTT))
	}
	return good("%s, answer in %.1f ms", what, human.Milliseconds(r.RTT)).With("rtt_ms", human.Milliseconds(r.RTT))
}

// Etcd judges the answer of etcd.
func Etcd(r client.Reply) Finding {
	switch {
	case r.Err != nil:
		return Bad("look at etcd; serving goes on, changes wait", "%v", r.Err)
	case r.RTT > slow:
		return poor("a faster disk or network for etcd", "answers in %s", human.Millis(r.RTT)).With("rtt_ms", human.Milliseconds(r.RTT))
	}
	return good("answers in %.1f ms", human.Milliseconds(r.RTT)).With("rtt_ms", human.Milliseconds(r.RTT))
}

// NATS judges the answer of the event plane; nil: none is configured.
func NATS(r *client.Reply) Finding {
	switch {
	case r == nil:
		return poor("--nats-url, or NATS_SERVER", "no event plane is configured")
	case r.Err != nil:
		return Bad("look at NATS; prefill workers are called directly meanwhile", "%v", r.Err)
	case r.RTT > slow:
		return poor("a faster network for NATS", "answers in %s", human.Millis(r.RTT)).With("rtt_ms", human.Milliseconds(r.RTT))
	}
	return good("answers in %.1f ms", human.Milliseconds(r.RTT)).With("rtt_ms", human.Milliseconds(r.RTT))
}

// PrefillQueue judges the work queue of prefills; nil: there is no event plane.
func PrefillQueue(q *client.QueueReply) Finding {
	switch {
	case q == nil:
		return Skipped("no event plane is configured")
	case q.Err != nil:
		return Bad("nats-server has to run with JetStream (-js)", "JetStream: %v", q.Err)
	}
	d := q.Depth
	text := fmt.Sprintf("JetStream works; %d waiting, %d in work, %s", d.Pending, d.InWork, human.Plural(d.DeadLettered, "dead letter"))
	f := good("%s", text)
	if d.DeadLettered > 0 {
		if last := q.LastDead; last != nil {
			text += fmt.Sprintf(", the newest of request %s after %s: %s", last.ID, human.Plural(last.Attempts, "attempt"), last.Reason)
		}
		f = poor("dynctl logs of the prefill workers say why they gave up", "%s", text)
	}
	return f.With("waiting", d.Pending).With("in_work", d.InWork).With("dead_letters", d.DeadLettered)
}

// Controller judges whether a node leads, whose controller carries out changes.
func Controller(v client.View, leader string, err error) Finding {
	switch {
	case err != nil:
		return Bad("look at the store", "%v", err)
	case len(v.Nodes) == 0:
		return Skipped("no node is up")
	case leader == "":
		return Bad("dynctl logs", "no node leads: topology changes are not carried out")
	}
	return good("%s leads", leader).With("leader", leader)
}

// Nodes judges versions and instructions of nodes; own is the version of dynctl, start how a
// node is started.
func Nodes(v client.View, own, start string) Finding {
	versions, isas := map[string][]string{}, map[string][]string{}
	var names []string
	for _, n := range v.Nodes {
		for _, isa := range n.ISAs() {
			isas[isa] = append(isas[isa], n.Name)
		}
		versions[n.Version] = append(versions[n.Version], n.Name)
		names = append(names, n.Name)
	}
	if len(names) == 0 {
		return Bad(start, "none is up")
	}
	if far := onlyLocal(v.Nodes); len(far) > 0 {
		return Bad("dynamod --node-advertise-host ADDRESS on "+human.Names(far)+", an address at which the other nodes reach it",
			"other nodes are told to reach %s at a loopback address", human.Names(far)).With("unreachable", far)
	}
	parts, ways := onNodes(versions), onNodes(isas)
	const fix = "dynctl down, then up, with dynctl and dynamod of one release"
	switch _, same := versions[own]; {
	case len(versions) > 1:
		return poor(fix, "several versions: %s", strings.Join(parts, "; ")).With("versions", versions)
	case !same:
		return poor(fix, "%s; dynctl is %s", parts[0], own).With("versions", versions)
	case len(ways) > 1:
		// A sequence that moves may go on with another token.
		return poor("set cpu.isa and cpu.activations to what all nodes have", "nodes compute differently: %s", strings.Join(ways, "; ")).With("versions", versions).With("isa", isas)
	case len(ways) == 1:
		return good("%s: %s, as dynctl, computing with %s", human.Names(names), own, slices.Sorted(maps.Keys(isas))[0]).With("versions", versions).With("isa", isas)
	}
	return good("%s: %s, as dynctl", human.Names(names), own).With("versions", versions)
}

// Alarms judges what nodes say that an operator has to see to.
func Alarms(nodes []cluster.Node) Finding {
	var texts []string
	for _, n := range nodes {
		for _, text := range n.Alarms {
			texts = append(texts, n.Name+": "+text)
		}
	}
	if len(texts) == 0 {
		return good("no node has to be seen to")
	}
	return poor("dynctl logs node/NAME tells since when", "%s", firstOf(texts)).With("alarms", texts)
}

// onlyLocal names the nodes that advertise a loopback address, where nodes are on several
// hosts or others advertise one of a network.
func onlyLocal(nodes []cluster.Node) (names []string) {
	hosts := map[string]bool{}
	for _, n := range nodes {
		hosts[n.Host] = true
		at, _ := cluster.SplitPlane(n.RequestPlane)
		if host, _, err := net.SplitHostPort(at); err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback()) {
			names = append(names, n.Name)
		}
	}
	if len(hosts) < 2 && len(names) == len(nodes) {
		return nil
	}
	return names
}

// RequestPlane judges how workers answer requests.
func RequestPlane(nodes []cluster.Node, workers map[string]client.Reply) Finding {
	if len(workers) == 0 {
		return Skipped("no worker can be asked")
	}
	ms := map[string]float64{}
	var silent []string
	var most time.Duration
	for _, name := range slices.SortedFunc(maps.Keys(workers), cluster.CompareNames) {
		r := workers[name]
		if r.Err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", name, r.Err))
			continue
		}
		ms[name], most = human.Milliseconds(r.RTT), max(most, r.RTT)
	}
	switch {
	case len(silent) > 0:
		name, _, _ := strings.Cut(silent[0], ":")
		return Bad("dynctl logs "+name+"; between hosts, a firewall or request_plane.listen", "%s", firstOf(silent)).With("rtt_ms", ms)
	case most > slow:
		return poor("a faster network, or fewer requests", "the slowest worker answers in %s", human.Millis(most)).With("rtt_ms", ms)
	}
	return good("%s answer in at most %.1f ms, over %s", human.Plural(len(ms), "worker"), human.Milliseconds(most), planes(nodes)).With("rtt_ms", ms)
}

// planes names the request planes on which nodes serve.
func planes(nodes []cluster.Node) string {
	names := map[string]bool{}
	for _, n := range nodes {
		_, plane := cluster.SplitPlane(n.RequestPlane)
		names[string(plane)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " and ")
}

// onNodes says which nodes each of several things is on: "v1 on a, c".
func onNodes(things map[string][]string) (parts []string) {
	for _, thing := range slices.Sorted(maps.Keys(things)) {
		parts = append(parts, fmt.Sprintf("%s on %s", human.OrDash(thing), human.Names(things[thing])))
	}
	return parts
}

// skewed is the tolerated difference between clocks: logs and events are sorted by time,
// leases are not.
const skewed = 500 * time.Millisecond

// Clocks compares the clocks of nodes with that of this machine.
func Clocks(clocks map[string]client.Clock) Finding {
	if len(clocks) == 0 {
		return Skipped("no worker reports its time")
	}
	offsets := map[string]float64{}
	var off []string
	var most, vague time.Duration
	told := false
	for _, name := range slices.Sorted(maps.Keys(clocks)) {
		k := clocks[name]
		offsets[name] = human.Milliseconds(k.Offset)
		most, vague = max(most, k.Offset.Abs()), max(vague, k.Uncertainty)
		told = told || k.Offset.Abs() > k.Uncertainty
		if k.Offset.Abs()-k.Uncertainty > skewed {
			off = append(off, fmt.Sprintf("%s by %+.1fs ± %s", name, k.Offset.Seconds(), human.Millis(k.Uncertainty)))
		}
	}
	if len(off) > 0 {
		return poor("chronyc tracking, or timedatectl, on that node", "different from this machine's: %s", strings.Join(off, ", ")).With("offset_ms", offsets)
	}
	if !told {
		return good("no measurable difference to this machine's, to %.1f ms", human.Milliseconds(vague)).With("offset_ms", offsets)
	}
	return good("at most %.1f ms ± %.1f ms from this machine's", human.Milliseconds(most), human.Milliseconds(vague)).With("offset_ms", offsets)
}
