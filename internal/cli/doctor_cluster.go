package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/statedir"
)

const (
	groupCluster  = "cluster"
	groupFrontend = "frontend"
)

// clusterChecks are those of a cluster, in order.
func clusterChecks() []string {
	return []string{"etcd", "nats", "prefill-queue", "controller", "nodes", "request-plane", "clocks", "leases", "workers", "model-files", "paths"}
}

func frontendChecks() []string { return []string{"health", "models", "answer"} }

// clusterFindings checks the cluster and its frontends.
func (o *doctorCommand) clusterFindings(ctx context.Context, inv *invocation) []finding {
	begin := time.Now()
	reach, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c, err := client.Connect(reach, inv.target(), inv.log)
	var v client.View
	if err == nil {
		inv.open = append(inv.open, c)
		v, err = c.View(reach)
	}
	took := milliseconds(time.Since(begin))
	if err != nil {
		return o.unreachable(inv, err, took)
	}
	var own, front []finding
	var wg sync.WaitGroup
	wg.Go(func() {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		var leader string
		var leads error
		var wg sync.WaitGroup
		wg.Go(func() { leader, leads = c.Leader(ctx) })
		var cards []cluster.ModelCard
		var unread error
		wg.Go(func() { cards, unread = c.ModelCards(ctx) })
		p := c.Probe(ctx, v)
		wg.Wait()
		own = append(clusterState(inv, v, p, leader, leads), filesFinding(ctx, v, cards, unread))
		for i := range own {
			own[i].Group, own[i].Name, own[i].TookMS = groupCluster, clusterChecks()[i], milliseconds(time.Since(begin))
		}
	})
	wg.Go(func() { front = o.frontendFindings(ctx, inv, v) })
	wg.Wait()
	// What moves bytes and computes comes after what it would slow down.
	begin = time.Now()
	paths := pathsFinding(c.Measure(ctx, v, o.timeout, mostPaths))
	paths.Group, paths.Name, paths.TookMS = groupCluster, clusterChecks()[len(own)], milliseconds(time.Since(begin))
	out := append(append(own, paths), front...)
	if o.modelCheck != "" {
		out = append(out, o.recallFindings(ctx, inv, c, v)...)
	}
	return out
}

// unreachable is what can be said of a cluster that does not run or does not answer.
func (o *doctorCommand) unreachable(inv *invocation, err error, took float64) []finding {
	var out []finding
	for i, name := range append(clusterChecks(), frontendChecks()...) {
		f := skipped("etcd has to answer first")
		switch {
		case errors.Is(err, statedir.ErrNotRunning):
			f = skipped("no cluster runs")
			if others := inv.runningClusters(); len(others) > 0 {
				f = skipped("cluster %s does not run; running here: %s", inv.cfg.Cluster, strings.Join(others, ", "))
			}
		case i == 0:
			f = bad("dynctl ps -v, and look at etcd", "%v", err)
			f.TookMS = took
		}
		f.Name, f.Group = name, groupCluster
		if i >= len(clusterChecks()) {
			f.Group = groupFrontend
		}
		out = append(out, f)
	}
	if o.modelCheck != "" {
		out = append(out, finding{Name: "recall", Group: groupRecall, Status: checkSkip, Found: "no cluster answers"})
	}
	return out
}

// clusterState judges what the services of a cluster say, in the order of the checks.
func clusterState(inv *invocation, v client.View, p client.Probe, leader string, leads error) []finding {
	return []finding{
		etcdFinding(p.Etcd), natsFinding(p.NATS), queueFinding(p.Queue), controllerFinding(v, leader, leads),
		nodesFinding(v), planeFinding(p.Workers), clocksFinding(p.Clocks), leasesFinding(v, p), workersFinding(inv, v),
	}
}

// slow is from where on a round trip to a store deserves a look.
const slow = 100 * time.Millisecond

func etcdFinding(r client.Reply) finding {
	switch {
	case r.Err != nil:
		return bad("look at etcd; serving goes on, changes wait", "%v", r.Err)
	case r.RTT > slow:
		return poor("a faster disk or network for etcd", "answers in %s", milliText(r.RTT)).with("rtt_ms", milliseconds(r.RTT))
	}
	return good("answers in %.1f ms", milliseconds(r.RTT)).with("rtt_ms", milliseconds(r.RTT))
}

func natsFinding(r *client.Reply) finding {
	switch {
	case r == nil:
		return poor("--nats-url, or NATS_SERVER", "no event plane is configured")
	case r.Err != nil:
		return bad("look at NATS; prefill workers are called directly meanwhile", "%v", r.Err)
	case r.RTT > slow:
		return poor("a faster network for NATS", "answers in %s", milliText(r.RTT)).with("rtt_ms", milliseconds(r.RTT))
	}
	return good("answers in %.1f ms", milliseconds(r.RTT)).with("rtt_ms", milliseconds(r.RTT))
}

func queueFinding(q *client.QueueReply) finding {
	switch {
	case q == nil:
		return skipped("no event plane is configured")
	case q.Err != nil:
		return bad("nats-server has to run with JetStream (-js)", "JetStream: %v", q.Err)
	}
	d := q.Depth
	text := fmt.Sprintf("JetStream works; %d waiting, %d in work, %s", d.Pending, d.InWork, plural(d.DeadLettered, "dead letter"))
	f := good("%s", text)
	if d.DeadLettered > 0 {
		f = poor("dynctl logs of the prefill workers say why they gave up", "%s", text)
	}
	return f.with("waiting", d.Pending).with("in_work", d.InWork).with("dead_letters", d.DeadLettered)
}

func controllerFinding(v client.View, leader string, err error) finding {
	switch {
	case err != nil:
		return bad("look at etcd", "%v", err)
	case len(v.Nodes) == 0:
		return skipped("no node is up")
	case leader == "":
		return bad("dynctl logs", "no node leads: topology changes are not carried out")
	}
	return good("%s leads", leader).with("leader", leader)
}

func nodesFinding(v client.View) finding {
	own := buildVersion().Version
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
		return bad("dynctl up, or dynamod on each node", "none is up")
	}
	parts, ways := onNodes(versions), onNodes(isas)
	const fix = "dynctl down, then up, with dynctl and dynamod of one release"
	switch _, same := versions[own]; {
	case len(versions) > 1:
		return poor(fix, "several versions: %s", strings.Join(parts, "; ")).with("versions", versions)
	case !same:
		return poor(fix, "%s; dynctl is %s", parts[0], own).with("versions", versions)
	case len(ways) > 1:
		// A sequence that moves may go on with another token.
		return poor("set cpu.isa and cpu.activations to what all nodes have", "nodes compute differently: %s", strings.Join(ways, "; ")).with("versions", versions).with("isa", isas)
	case len(ways) == 1:
		return good("%s: %s, as dynctl, computing with %s", nameList(names), own, slices.Sorted(maps.Keys(isas))[0]).with("versions", versions).with("isa", isas)
	}
	return good("%s: %s, as dynctl", nameList(names), own).with("versions", versions)
}

// planeFinding judges how workers answer requests.
func planeFinding(workers map[string]client.Reply) finding {
	if len(workers) == 0 {
		return skipped("no worker can be asked")
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
		ms[name], most = milliseconds(r.RTT), max(most, r.RTT)
	}
	switch {
	case len(silent) > 0:
		name, _, _ := strings.Cut(silent[0], ":")
		return bad("dynctl logs "+name+"; between hosts, a firewall or request_plane.listen", "%s", firstOf(silent)).with("rtt_ms", ms)
	case most > slow:
		return poor("a faster network, or fewer requests", "the slowest worker answers in %s", milliText(most)).with("rtt_ms", ms)
	}
	return good("%s answer in at most %.1f ms", plural(len(ms), "worker"), milliseconds(most)).with("rtt_ms", ms)
}

// onNodes says which nodes each of several things is on: "v1 on a, c".
func onNodes(things map[string][]string) (parts []string) {
	for _, thing := range slices.Sorted(maps.Keys(things)) {
		parts = append(parts, fmt.Sprintf("%s on %s", orDash(thing), nameList(things[thing])))
	}
	return parts
}

// skewed is how far clocks may be apart: logs and events are sorted by their times,
// leases are not.
const skewed = 500 * time.Millisecond

func clocksFinding(clocks map[string]client.Clock) finding {
	if len(clocks) == 0 {
		return skipped("no worker tells its time")
	}
	offsets := map[string]float64{}
	var off []string
	var most, vague time.Duration
	told := false
	for _, name := range slices.Sorted(maps.Keys(clocks)) {
		k := clocks[name]
		offsets[name] = milliseconds(k.Offset)
		most, vague = max(most, k.Offset.Abs()), max(vague, k.Uncertainty)
		told = told || k.Offset.Abs() > k.Uncertainty
		if k.Offset.Abs()-k.Uncertainty > skewed {
			off = append(off, fmt.Sprintf("%s by %+.1fs ± %s", name, k.Offset.Seconds(), milliText(k.Uncertainty)))
		}
	}
	if len(off) > 0 {
		return poor("chronyc tracking, or timedatectl, on that node", "other than this machine's: %s", strings.Join(off, ", ")).with("offset_ms", offsets)
	}
	if !told {
		return good("no difference to this machine's that could be told, to %.1f ms", milliseconds(vague)).with("offset_ms", offsets)
	}
	return good("at most %.1f ms ± %.1f ms from this machine's", milliseconds(most), milliseconds(vague)).with("offset_ms", offsets)
}

// leasesFinding judges leases: their owners renew them when half of the time is gone.
func leasesFinding(v client.View, p client.Probe) finding {
	var late []string
	for _, l := range p.Leases {
		if l.Left < l.TTL/3 {
			late = append(late, fmt.Sprintf("%s has %.1fs of %.0fs left", l.Owner, l.Left.Seconds(), l.TTL.Seconds()))
		}
	}
	switch {
	case len(p.Gone) > 0:
		return bad("dynctl logs "+p.Gone[0], "ended: %s", nameList(p.Gone)).with("ended", p.Gone)
	case len(late) > 0:
		return poor("dynctl top --view leases", "not renewed in time: %s", strings.Join(late, ", "))
	case len(p.Leases) == 0 && p.Unasked > 0:
		return bad("look at etcd", "etcd does not tell them")
	case len(p.Leases) == 0:
		return skipped("nobody holds one")
	}
	first := p.Leases[0]
	text := fmt.Sprintf("%s, all renewed; the soonest to end, %s, has %.1fs of %.0fs left", plural(len(p.Leases), "lease"), first.Owner, first.Left.Seconds(), first.TTL.Seconds())
	if p.Unasked > 0 {
		text += fmt.Sprintf("; %d not looked at", p.Unasked)
	}
	return good("%s", text).with("leases", len(p.Leases)).with("least_left_ms", milliseconds(first.Left))
}

func workersFinding(inv *invocation, v client.View) finding {
	t := v.Topology
	if t == nil || t.Prefill+t.Decode == 0 {
		return poor("dynctl up", "no topology is declared")
	}
	worst := checkOK
	var notes []string
	fix := ""
	ready := 0
	for _, w := range v.Workers() {
		note := w.Name + " " + string(w.State)
		if w.Reason != "" {
			note += ": " + w.Reason
		}
		switch w.State {
		case cluster.StateReady:
			ready++
			continue
		case cluster.StateFailed, cluster.StateLost:
			if worst != checkFail {
				worst, fix = checkFail, "dynctl logs "+w.Name
			}
		case cluster.StateDraining, cluster.StateDrained:
			if worst == checkOK {
				worst, fix = checkWarn, "dynctl resume "+w.Name
			}
		case cluster.StateDegraded:
			ready++
			if worst == checkOK {
				worst, fix = checkWarn, "dynctl top"
			}
		default:
			if worst == checkOK {
				worst, fix = checkWarn, "dynctl ps -w"
			}
		}
		notes = append(notes, note)
	}
	want := t.Prefill + t.Decode
	text := fmt.Sprintf("%d of %s serve %s", ready, plural(want, "worker"), t.Model.Name)
	if ready < want && worst == checkOK {
		worst, fix = checkWarn, "dynctl ps"
	}
	if len(notes) > 0 {
		text += "; " + strings.Join(notes, "; ")
	}
	return finding{Status: worst, Found: text, Fix: fix}.with("serving", ready).with("declared", want)
}
