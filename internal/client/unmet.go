package client

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Unmet lists the differences between the cluster and its topology that do not resolve by
// themselves. Each line names a worker that cannot start, has no place or could not
// change. Changes in progress are not listed.
func (v View) Unmet() (out []string) {
	if v.Topology != nil {
		if err := v.Topology.Validate(); err != nil {
			out = append(out, "the declared topology is invalid, workers stay as they are: "+err.Error())
		}
	}
	for _, w := range v.Workers() {
		a := v.Assignments[w.Name]
		switch why := v.Refused(a); {
		case why != "":
			out = append(out, w.Name+" "+goesOn+why)
		case a.Desire != cluster.DesireRun:
		case a.Node == "" && a.Unplaced != "", w.State == cluster.StateFailed:
			out = append(out, fmt.Sprintf("%s %s: %s", w.Name, w.State, w.Reason))
		}
	}
	return out
}

// goesOn begins the reason of a worker that serves without following its assignment.
const goesOn = "keeps its configuration: "

// Refused returns the reason why a worker runs unchanged although another model, engine
// or role, or a restart, was ordered. It is empty when no change was refused, or when the
// change is no longer wanted.
func (v View) Refused(a cluster.Assignment) string {
	f := a.Refused.Form
	if a.Refused.Why == "" || v.Topology == nil || a.Desire == cluster.DesireRemove {
		return ""
	}
	t := v.Topology.In(a.Pool)
	model, engine := t.Specs(f.Role)
	if f.Model != model || f.Engine != engine || f.Restarts < v.Topology.Restarts {
		return ""
	}
	if f.Role != a.Role && v.staying(a.Pool, f.Role) >= t.Count(f.Role) {
		return ""
	}
	return a.Refused.Why
}

// staying counts the workers of a role in a pool that serve and are not to leave.
func (v View) staying(pool string, role cluster.Role) (n int) {
	for _, a := range v.Assignments {
		if a.Pool == pool && a.Role == role && a.Desire == cluster.DesireRun && v.Status[a.Name].State.Serving() {
			n++
		}
	}
	return n
}

// Impossible lists the reasons why the present nodes cannot carry out a topology: it asks
// for devices that no node has, or for KV pools larger than any device. The nodes check
// everything else before they change a worker.
func (v View) Impossible(t cluster.Topology) (out []string) {
	for _, pool := range t.PoolNames() {
		for _, why := range v.impossible(t.In(pool)) {
			if pool != "" {
				why = "pool " + pool + ": " + why
			}
			out = append(out, why)
		}
	}
	return out
}

// impossible is Impossible for one pool.
func (v View) impossible(t cluster.Topology) (out []string) {
	for _, role := range cluster.Roles {
		model, engine := t.Specs(role)
		if t.Count(role) == 0 || engine.Server.Attached() { // which takes no device
			continue
		}
		var bytes, most int64
		for _, name := range slices.Sorted(maps.Keys(v.Assignments)) {
			if a := v.Assignments[name]; a.Model == model {
				bytes = max(bytes, v.Status[name].PoolBytes(a.Engine, engine))
			}
		}
		found, fits := false, false
		for _, n := range v.Nodes {
			for _, d := range n.Devices {
				if !engine.RunsOn(d.ID) {
					continue
				}
				room := n.MemoryOf(d)
				found, most = true, max(most, room)
				fits = fits || room <= 0 || bytes <= room
			}
		}
		switch {
		case !found:
			out = append(out, fmt.Sprintf("%s workers: no node has a device %s", role, engine.WantedDevices()))
		case !fits:
			out = append(out, fmt.Sprintf("%s workers: %d KV blocks need %.1f GiB, no device has more than %.1f GiB", role, engine.KVBlocks, gib(bytes), gib(most)))
		}
	}
	return out
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }
