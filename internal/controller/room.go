package controller

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
)

// place chooses a node and a device for a worker, or returns the reason why there is
// none.
func (p *planner) place(it *item) (cluster.Node, cluster.Device, string) {
	nodes := p.candidates(it)
	if len(nodes) > 0 || len(p.Nodes) == 0 {
		return place(it.Assignment, p.placement(it.Role), nodes, p.load())
	}
	open := 0
	for _, n := range p.Nodes {
		if _, cordoned := p.Cordons[n.ID]; !cordoned {
			open++
		}
	}
	if open == 0 {
		return cluster.Node{}, cluster.Device{}, "all nodes are drained"
	}
	return cluster.Node{}, cluster.Device{}, fmt.Sprintf("no device has %.1f GiB free", float64(max(p.need(it), p.estimate(it)))/(1<<30))
}

// candidates returns the nodes that take workers, each with only the devices that have
// room.
func (p *planner) candidates(it *item) (out []cluster.Node) {
	need, estimate := p.need(it), p.estimate(it)
	for _, n := range p.Nodes {
		if _, cordoned := p.Cordons[n.ID]; cordoned {
			continue
		}
		all, devices := n, n.Devices
		n.Devices = nil
		for _, d := range devices {
			if d.MemoryBytes <= 0 || need <= d.MemoryBytes-p.used(n.ID, d.ID, it) && estimate <= all.MemoryOf(d) {
				n.Devices = append(n.Devices, d)
			}
		}
		if len(n.Devices) > 0 || len(devices) == 0 {
			out = append(out, n)
		}
	}
	return out
}

// need returns the memory in bytes that workers of the same model and engine report. Zero
// means that none has reported it; the node then finds out.
func (p *planner) need(it *item) (bytes int64) {
	for _, o := range p.work {
		if o.Model == it.Model && o.Engine == it.Engine {
			bytes = max(bytes, p.Status[o.Name].MemoryBytes)
		}
	}
	return bytes
}

// estimate returns the size in bytes that the worker's KV pool would have, scaled from
// workers of the same model. It is accurate enough to detect a pool that fits nowhere.
func (p *planner) estimate(it *item) (bytes int64) {
	for _, o := range p.work {
		if o.Model == it.Model {
			bytes = max(bytes, p.Status[o.Name].PoolBytes(o.Engine, it.Engine))
		}
	}
	return bytes
}

// used returns the memory in bytes that the workers of a device use, without that of but.
func (p *planner) used(node, device string, but *item) (bytes int64) {
	for _, o := range p.work {
		if o.deleted || o.Node != node || o.Device != device || o.Name == but.Name {
			continue
		}
		if b := p.Status[o.Name].MemoryBytes; b > 0 {
			bytes += b
		} else if o.Desire == cluster.DesireRun {
			bytes += p.need(o)
		}
	}
	return bytes
}
