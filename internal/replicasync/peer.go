package replicasync

import (
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

const (
	// heartbeat is how often a frontend tells its position, at least.
	heartbeat = time.Second
	// silentFor is how long a frontend may be silent before it is asked.
	silentFor = 3 * heartbeat
	// untrueFor is how long the flights of a frontend that is known to be out of date stay.
	untrueFor = 2 * time.Second
	// retryAfter is the wait after a question without an answer.
	retryAfter = 500 * time.Millisecond
	// heldMost bounds the messages of a frontend that wait for the answer to a question: the
	// sum of messages, changes and hashes. More are dropped, which shows as a gap after the
	// answer.
	heldMost = 1 << 20
)

// peer follows the flights of one other frontend. It decides; it asks and waits for
// nothing.
type peer struct {
	at      cluster.Instance
	mirrors map[cluster.Role]*router.Mirror
	metrics *metrics.ReplicaSync

	known   bool   // an answer has told epoch and next
	epoch   uint64 // of what is applied
	next    uint64 // number of the first change that is not applied
	heard   time.Time
	missing time.Time // when changes were first known to be missing; zero if none are
	asking  bool
	retry   time.Time              // not before this
	held    []cluster.FlightEvents // while changes are missing
	size    int                    // of held

	gaps, snapshots uint64
}

func newPeer(at cluster.Instance, loads map[cluster.Role]*router.Load, m *metrics.ReplicaSync, now time.Time) *peer {
	p := &peer{at: at, mirrors: map[cluster.Role]*router.Mirror{}, metrics: m, heard: now}
	for phase, l := range loads {
		p.mirrors[phase] = router.NewMirror(l)
	}
	return p
}

// flights returns the number of flights that are counted.
func (p *peer) flights() (n int) {
	for _, m := range p.mirrors {
		n += m.Len()
	}
	return n
}

// message applies a message, or holds it while changes are missing before it.
func (p *peer) message(m cluster.FlightEvents, now time.Time) {
	p.heard = now
	switch {
	case !p.known || !p.missing.IsZero():
		p.hold(m)
	case m.Epoch < p.epoch: // an answer has overtaken it
	case m.Epoch > p.epoch:
		p.miss(now)
		p.hold(m)
	case m.First > p.next:
		p.gaps += m.First - p.next
		p.metrics.Gaps.Add(float64(m.First - p.next))
		p.miss(now)
		p.hold(m)
	default:
		for i, c := range m.Changes {
			if m.First+uint64(i) == p.next { // else an answer contains it
				p.apply(c)
				p.next++
			}
		}
	}
}

func (p *peer) apply(c cluster.FlightChange) {
	switch {
	case c.Kind == cluster.FlightBegin && p.flights() >= flightsMost:
		p.metrics.Excess.Inc()
	case !p.mirrors[c.Phase].Apply(c):
		p.metrics.Malformed.Inc()
	}
}

func (p *peer) hold(m cluster.FlightEvents) {
	size := 1 + len(m.Changes)
	for _, c := range m.Changes {
		size += len(c.Hashes)
	}
	if p.size+size <= heldMost {
		p.held, p.size = append(p.held, m), p.size+size
	}
}

// miss notes that changes are missing.
func (p *peer) miss(now time.Time) {
	if p.missing.IsZero() {
		p.missing = now
	}
}

// due reports whether the frontend must be asked now. It is called many times a second. It
// forgets flights that have been out of date for too long.
func (p *peer) due(now time.Time) bool {
	if now.Sub(p.heard) >= silentFor {
		p.miss(now)
	}
	if p.known && !p.missing.IsZero() && now.Sub(p.missing) >= untrueFor {
		p.forget()
	}
	return !p.asking && !now.Before(p.retry) && (!p.known || !p.missing.IsZero())
}

// forget drops all flights.
func (p *peer) forget() {
	for _, m := range p.mirrors {
		m.Replace(nil)
	}
	p.known = false
}

// failed notes that a question got no answer.
func (p *peer) failed(now time.Time) { p.asking, p.retry = false, now.Add(retryAfter) }

// answer takes the pages that the frontend sent.
func (p *peer) answer(pages []protocol.FlightsPage, now time.Time) error {
	all := map[cluster.Role][]cluster.FlightChange{}
	open := 0
	for _, page := range pages {
		if err := check(page.Changes); err != nil {
			return err
		}
		if page.Frontend != p.at.InstanceID || page.Epoch != pages[0].Epoch || page.Next != pages[0].Next {
			return fmt.Errorf("%w: page of frontend %s, epoch %d, position %d", errMalformed, page.Frontend, page.Epoch, page.Next)
		}
		for _, c := range page.Changes {
			if c.Kind == cluster.FlightBegin {
				if open++; open > flightsMost {
					p.metrics.Excess.Inc()
					continue
				}
			}
			all[c.Phase] = append(all[c.Phase], c)
		}
	}
	if len(pages) == 0 {
		return fmt.Errorf("%w: no pages", errMalformed)
	}
	for phase, m := range p.mirrors {
		m.Replace(all[phase])
	}
	p.snapshots++
	p.metrics.Snapshots.Inc()
	p.asking, p.heard, p.known, p.missing = false, now, true, time.Time{}
	p.epoch, p.next = pages[0].Epoch, pages[0].Next
	held := p.held
	p.held, p.size = nil, 0
	for _, m := range held {
		p.message(m, now)
	}
	return nil
}
