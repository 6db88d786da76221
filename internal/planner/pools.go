package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Budget is what all pools of a cluster may take together. Prefill and Decode are the devices of one role;
// 0: no bound but Devices.
type Budget struct{ Devices, Prefill, Decode int }

// Seat is one pool where a budget is shared.
type Seat struct {
	Pool        string // its name; empty: the main pool
	Planner     *Planner
	Observation Observation
}

// holding is what a pool has of a budget: of all devices, and of those of each role.
type holding [3]int

func (b Budget) holding() holding { return holding{b.Devices, b.Prefill, b.Decode} }

// bounds reports whether the budget bounds its i-th part.
func (b Budget) bounds(i int) bool { return i == 0 || b.holding()[i] > 0 }

// holding returns the devices of a plan.
func (c Config) holding(p Plan) holding {
	return holding{c.DevicesOf(p), c.own(p, cluster.RolePrefill) * c.Prefill.DevicesPerWorker, c.own(p, cluster.RoleDecode) * c.Decode.DevicesPerWorker}
}

func (h holding) max(o holding) holding {
	for i := range h {
		h[i] = max(h[i], o[i])
	}
	return h
}

// chair is a seat with what its pool has, keeps and gives.
type chair struct {
	Seat
	has, floor, keeps, gives holding
	draining                 int
	misses                   float64
}

// Share has the planners of several pools decide on one budget, and returns their decisions in the order of
// the seats. What a pool has and what it proposes is kept for it, and so is its minimum, as far as the budget
// goes: that of earlier seats first. What is free goes to the pool that misses its target most. Where the
// pools have more than the budget, those that miss it least give back, down to their minima.
func Share(now time.Time, b Budget, seats []Seat) []Decision {
	chairs := make([]chair, len(seats))
	left := b.holding()
	for i, s := range seats {
		p, o := s.Planner, s.Observation
		p.cfg.Devices, p.cfg.Prefill.Devices, p.cfg.Decode.Devices = b.Devices, b.Prefill, b.Decode
		p.cfg.others, p.cfg.Prefill.others, p.cfg.Decode.others, p.cfg.holders = 0, 0, 0, ""
		plan := p.present(o)
		c := chair{Seat: s, has: p.cfg.holding(plan), misses: p.misses(now, o)}
		c.floor = p.cfg.holding(p.cfg.minimum(Plan{}))
		if p.cfg.Mode == ModeOff {
			c.floor = c.has // nobody takes anything from it
		}
		for k := range left {
			if b.bounds(k) {
				c.floor[k] = min(c.floor[k], max(left[k], 0))
				left[k] -= c.floor[k]
			}
		}
		for _, role := range Roles {
			c.draining += o.Role(role).draining() * p.cfg.Role(role).DevicesPerWorker
		}
		c.keeps = c.has.max(c.floor)
		chairs[i] = c
	}
	over := giveBack(b, chairs)
	out := make([]Decision, len(seats))
	for _, i := range neediestFirst(chairs) {
		c := &chairs[i]
		p := c.Planner
		var others holding
		draining := 0
		for k := range chairs {
			if k != i {
				draining += chairs[k].draining
				for part := range others {
					others[part] += chairs[k].keeps[part]
				}
			}
		}
		for part, more := range over {
			if more {
				others[part] = b.holding()[part] - c.has[part] + c.gives[part]
			}
		}
		p.cfg.others, p.cfg.Prefill.others, p.cfg.Decode.others = others[0], others[1], others[2]
		p.cfg.draining, p.cfg.holders = draining, holders(b, chairs, i)
		out[i] = p.Tick(now, c.Observation)
		c.keeps = c.keeps.max(p.cfg.holding(out[i].Proposal))
	}
	return out
}

// giveBack says what each pool must give back, and of which parts of the budget there is more than it has.
func giveBack(b Budget, chairs []chair) (over [3]bool) {
	for part, budget := range b.holding() {
		if !b.bounds(part) {
			continue
		}
		more := -budget
		for _, c := range chairs {
			more += c.keeps[part]
		}
		over[part] = more > 0
		spare := func(i int) int { return max(chairs[i].has[part]-chairs[i].floor[part], 0) }
		order := neediestFirst(chairs)
		slices.Reverse(order)
		slices.SortStableFunc(order, func(i, k int) int {
			return cmp.Or(cmp.Compare(chairs[i].misses, chairs[k].misses), cmp.Compare(spare(k), spare(i)))
		})
		for _, i := range order {
			chairs[i].gives[part] = min(spare(i), max(more, 0))
			more -= chairs[i].gives[part]
		}
	}
	return over
}

// neediestFirst returns in which order the pools decide: those that miss their targets most first.
func neediestFirst(chairs []chair) []int {
	order := make([]int, len(chairs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, k int) int { return cmp.Compare(chairs[k].misses, chairs[i].misses) })
	return order
}

// holders says which other pools keep how much of the budget; empty if none does.
func holders(b Budget, chairs []chair, own int) string {
	var words []string
	for i, c := range chairs {
		if i != own && c.keeps[0] > 0 {
			words = append(words, fmt.Sprintf("%s keeps %d", cluster.PoolWords(c.Pool), c.keeps[0]))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("Of the %d devices for all pools, %s", b.Devices, strings.Join(words, ", "))
}

// misses returns the share of the requests of the last minute that missed a latency of the target, with those
// of an observation that has not been learned from yet; 0 for goals without latencies.
func (p *Planner) misses(now time.Time, o Observation) float64 {
	if p.cfg.Target.Goal != GoalSLA {
		return 0
	}
	var e evidence
	for _, w := range slices.Backward(p.history.windows) {
		if now.Sub(w.end) >= evidenceSpan {
			break
		}
		e.finished += w.finished
		e.missed += w.missed
	}
	if o.Stale == "" {
		e.finished += float64(len(o.Requests))
		e.missed += p.cfg.Target.missed(o.Requests)
	}
	return e.share()
}
