package tui

import "time"

// leaseSections are the boxes of a lease's screen: how long it lasts, whose it is, and
// what ends with it.
func (m *model) leaseSections() []section {
	i, ok := m.known.leaseAt[m.detail.lease]
	if !ok {
		return []section{{"lease", [][]span{
			{{"this lease of " + orUnknown(m.detail.owner) + " has ended", bad}},
			{{"It was revoked, or not renewed in time. A worker that lives takes a new one. esc goes back to the panes.", plain}},
		}}}
	}
	l := &m.snap.Leases[i]
	ends := m.at().Add(l.Left - m.countdown())
	left := append([]span{{padRight("left", 14) + " ", dim}}, m.ttlSpans(l, 36)...)
	lines := [][]span{
		left,
		fact("granted for", seconds(l.TTL), plain),
		fact("renewed", seconds(max(l.Renewed+m.countdown(), 0))+" ago", plain),
		fact("ends at", ends.In(m.opts.Location).Format("15:04:05")+" unless it is renewed", plain),
	}
	out := []section{{"lease", lines}, m.leaseOwner(l.Owner)}
	var keys [][]span
	for _, e := range l.Endpoints {
		keys = append(keys, []span{{e, plain}})
	}
	if len(keys) == 0 {
		keys = [][]span{{{"no endpoint is registered under it", dim}}}
	}
	return append(out, section{"endpoints that end with it", keys})
}

// leaseOwner says who renews a lease.
func (m *model) leaseOwner(name string) section {
	if w, i := m.worker(name); w != nil {
		age := unknown
		if measured(w) {
			age = seconds(max(m.at().Sub(w.UpdatedAt).Truncate(100*time.Millisecond), 0)) + " ago"
		}
		return section{"worker " + name, [][]span{
			append([]span{{padRight("state", 14) + " ", dim}}, m.stateSpans(w)...),
			{{padRight("role", 14) + " ", dim}, {orUnknown(string(w.Role)), roleStyle(w.Role)}},
			fact("device", orUnknown(m.known.devices[i]), plain),
			fact("node", orUnknown(w.Node), plain),
			fact("last status", age, plain),
		}}
	}
	if i, ok := m.known.nodeAt[name]; ok {
		n := &m.snap.Nodes[i]
		return section{"node " + name, [][]span{
			fact("host", orUnknown(n.Host), plain),
			fact("devices", deviceList(n), plain),
			fact("workers", commas(m.known.nodes[i].workers), plain),
			fact("up", m.up(n.StartedAt), plain),
		}}
	}
	return section{"owner", [][]span{{{orUnknown(name) + " is neither a worker nor a node of the cluster", warn}}}}
}
