package simulate

import (
	"math"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/profile"
)

// network shares the links of the workers between transfers. Each worker has a link out and
// a link in, of the bandwidth of its profile. A link is shared equally by the transfers that
// have something to send, and a transfer goes as fast as the slower of its two shares. What
// one link cannot use is not given to others, so rates are at most those of max-min fairness.
type network struct {
	s     *simulation
	flows []*flow // with something to send
	since time.Duration
	wakes uint64 // only the latest planned wake counts
}

// flow is a transfer between two workers, which gets more to send from time to time.
type flow struct {
	n        *network
	from, to *worker
	left     float64 // bytes to send of what was offered
	offered  float64
	whole    bool // nothing more will be offered
	rate     float64
	active   bool
	finished bool
	closed   bool
	begun    time.Duration
	done     func() error
}

// open begins a transfer; done is called when all of it has come.
func (n *network) open(from, to *worker, done func() error) *flow {
	return &flow{n: n, from: from, to: to, done: done, begun: n.s.now}
}

// offer tells how many bytes can be sent in total by now, and whether that is all.
func (f *flow) offer(bytes float64, whole bool) error {
	f.n.advance()
	if bytes > f.offered {
		f.left += bytes - f.offered
		f.offered = bytes
	}
	f.whole = f.whole || whole
	f.n.set(f, f.left > 0)
	f.n.plan()
	if f.whole && !f.active {
		f.finish()
	}
	return nil
}

// finish has the last bytes arrive after the latency.
func (f *flow) finish() {
	if f.finished {
		return
	}
	f.finished = true
	f.n.s.at(f.n.s.now+profile.Seconds(f.from.profile.KV.Latency), func() error {
		if f.closed {
			return nil
		}
		return f.done()
	})
}

// close ends the transfer, complete or not.
func (f *flow) close() {
	if f.closed {
		return
	}
	f.closed = true
	f.n.advance()
	f.n.set(f, false)
	f.n.plan()
}

// set adds a flow to those that send, or takes it away.
func (n *network) set(f *flow, active bool) {
	if f.active == active {
		return
	}
	f.active = active
	if active {
		n.flows = append(n.flows, f)
		f.from.egress, f.to.ingress = f.from.egress+1, f.to.ingress+1
		return
	}
	n.flows = slices.DeleteFunc(n.flows, func(o *flow) bool { return o == f })
	f.from.egress, f.to.ingress = f.from.egress-1, f.to.ingress-1
}

// advance sends what was sent since the last change.
func (n *network) advance() {
	seconds := (n.s.now - n.since).Seconds()
	n.since = n.s.now
	if seconds == 0 {
		return
	}
	for _, f := range n.flows {
		// What takes less than a nanosecond has been sent: times are whole nanoseconds.
		if f.left -= f.rate * seconds; f.left < f.rate*1.5e-9 {
			f.left = 0
		}
	}
}

// plan sets the rates and wakes at the next end of a flow.
func (n *network) plan() {
	n.wakes++
	if len(n.flows) == 0 {
		return
	}
	first := math.Inf(1)
	for _, f := range n.flows {
		f.rate = min(f.from.profile.KV.Bandwidth/float64(f.from.egress), f.to.profile.KV.Bandwidth/float64(f.to.ingress))
		first = min(first, f.left/f.rate)
	}
	wake := n.wakes
	n.s.at(n.s.now+time.Duration(math.Ceil(first*float64(time.Second))), func() error {
		if wake != n.wakes {
			return nil
		}
		n.advance()
		for _, f := range slices.Clone(n.flows) {
			if f.left == 0 {
				n.set(f, false)
				if f.whole {
					f.finish()
				}
			}
		}
		n.plan()
		return nil
	})
}
