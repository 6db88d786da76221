package moment

import (
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
)

// NodeFacts add up what the workers of a node do.
type NodeFacts struct {
	Workers         int
	Running         int
	KVUsed, KVTotal int
	TokS            *float64
	use             map[string]*float64 // of each device that has workers; nil: unknown
	devicesAreBusy  bool                // some use is known
}

// add counts a worker in.
func (n *NodeFacts) add(w *cluster.Worker) {
	n.Workers++
	if n.use == nil {
		n.use = map[string]*float64{}
	}
	if _, ok := n.use[w.Device]; !ok {
		n.use[w.Device] = nil
	}
	if !Measured(w) {
		return
	}
	if w.Role.HoldsKV() { // images are no sequences
		n.Running += w.Stats.Running
	}
	n.KVUsed += w.Stats.KVUsed()
	n.KVTotal += max(w.Stats.KVTotal, 0)
	if w.TokS != nil {
		n.TokS = sum(n.TokS, *w.TokS)
	}
	if w.Busy != nil {
		// Workers that share a device compute in turns.
		n.use[w.Device], n.devicesAreBusy = sum(n.use[w.Device], *w.Busy), true
	}
}

func sum(p *float64, v float64) *float64 {
	if p != nil {
		v += *p
	}
	return &v
}

// UseOf is the share of time in which a device computed, 0 to 1; nil is unknown.
func (n *NodeFacts) UseOf(device string) *float64 {
	p := n.use[device]
	if p == nil {
		return nil
	}
	v := min(*p, 1)
	return &v
}

// MeanUse is that of all devices with workers.
func (n *NodeFacts) MeanUse() *float64 {
	if !n.devicesAreBusy {
		return nil
	}
	total := 0.0
	for device := range n.use {
		if p := n.UseOf(device); p != nil {
			total += *p
		}
	}
	total /= float64(len(n.use))
	return &total
}

// KVText is used/total KV blocks.
func (n *NodeFacts) KVText() string {
	if n.KVTotal == 0 {
		return cells.Unknown
	}
	return cells.Commas(n.KVUsed) + "/" + cells.Commas(n.KVTotal)
}

// DeviceList names the devices of a node.
func DeviceList(n *cluster.Node) string {
	var names []string
	for i := range n.Devices {
		names = append(names, n.DeviceLabel(n.Devices[i].ID))
	}
	return cells.OrUnknown(strings.Join(names, ", "))
}

// StoreList names the stores that a node hosts.
func StoreList(n *cluster.Node) string {
	var names []string
	if n.EmbeddedEtcd {
		names = append(names, "etcd")
	}
	if n.EmbeddedNATS {
		names = append(names, "nats")
	}
	return cells.OrUnknown(strings.Join(names, " "))
}

// NodeLease is the lease of a node; nil when it is not known.
func (m *Moment) NodeLease(n *cluster.Node) *cluster.Lease {
	if i, ok := m.Known.leaseAt[n.InstanceID]; ok && n.InstanceID != 0 {
		return &m.Snap.Leases[i]
	}
	return nil
}

// Up is for how long something has run.
func (m *Moment) Up(since time.Time) string {
	if since.IsZero() {
		return cells.Unknown
	}
	return cells.Uptime(m.At().Sub(since))
}
