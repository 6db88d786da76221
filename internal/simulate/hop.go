package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/router"
)

// hop is the prompt of a request on its way through a prefill worker: from the decision to
// compute it there until its KV is given back. A nil hop is none, and may be abandoned.
type hop struct {
	s        *simulation
	j        *job
	from     *worker        // that computes; nil while the prompt waits in the prefill queue
	flight   *router.Flight // there; nil in the prefill queue
	tokens   []uint32
	prompt   *engine.Prefilling  // once it is submitted
	held     *engine.Held        // once it is computed
	room     *engine.Reservation // once a decode worker has blocks for it
	flow     *flow               // once there are both
	computed int                 // tokens whose KV can be read
	// unwanted: the decode worker takes the KV no more.
	unwanted, over bool
}

// submit has a worker compute the prompt.
func (h *hop) submit(w *worker) error {
	p, err := w.engine.Prefill(context.Background(), engine.PrefillRequest{ID: h.j.routed.ID, Tokens: h.tokens, Progress: func(computed int, _ []int32) {
		w.progress = append(w.progress, progress{h, computed})
	}})
	if err != nil {
		return err
	}
	h.from, h.prompt = w, p
	w.hops = append(w.hops, h)
	return nil
}

// advance is told that so many tokens are computed.
func (h *hop) advance(computed int) error {
	h.computed = computed
	return h.move()
}

// complete is told that the prompt is computed.
func (h *hop) complete(held *engine.Held, err error) error {
	if err != nil {
		return fmt.Errorf("simulate: prompt of request %d: %w", h.j.number, err)
	}
	h.held, h.computed = held, held.Tokens
	if h.flight != nil {
		h.flight.Prefilled()
	}
	if h.unwanted {
		return h.end()
	}
	if h.s.Sequential && h.flight != nil && h.room == nil {
		if h.s.ready(cluster.RoleDecode) == 0 {
			return h.j.strand()
		}
		return h.j.decode()
	}
	return h.move()
}

// reserved is called by the engine of the decode worker, within a step, when it has blocks
// for the prompt.
func (j *job) reserved(r *engine.Reservation) {
	h := j.hop
	if h == nil { // decode-first: the prompt goes on the prefill queue
		h = &hop{s: j.s, j: j, tokens: r.Prompt[:r.Wanted()]}
		j.hop = h
		j.s.flying++
		j.s.at(j.s.now+j.s.RemoteTimeout, h.expire)
	}
	h.room = r
	j.worker.asked = append(j.worker.asked, j)
}

// fill has the blocks of the request's reservation filled.
func (j *job) fill() error {
	switch h := j.hop; {
	case h.over:
		h.fallBack() // its time has passed
		return j.worker.step()
	case h.from == nil && h.flight == nil && h.prompt == nil:
		j.s.messages = append(j.s.messages, h)
		return j.s.serveQueue()
	default:
		return h.move()
	}
}

// queueConcurrency is the number of messages that one prefill worker holds (worker/prefill).
const queueConcurrency = 2

// serveQueue has prefill workers pull from the prefill queue, the idlest first.
func (s *simulation) serveQueue() error {
	for len(s.messages) > 0 {
		var to *worker
		for _, w := range s.workers {
			if w.role == cluster.RolePrefill && w.state == Ready && w.held < queueConcurrency && (to == nil || w.held < to.held) {
				to = w
			}
		}
		if to == nil {
			return nil
		}
		h := s.messages[0]
		s.messages[0] = nil
		s.messages = s.messages[1:]
		if err := h.submit(to); err != nil {
			return fmt.Errorf("simulate: prompt of request %d: %w", h.j.number, err)
		}
		to.held++
		if err := to.step(); err != nil {
			return err
		}
	}
	return nil
}

// move has what can be read of the KV sent into the reservation.
func (h *hop) move() error {
	if h.over || h.room == nil || h.from == nil {
		return nil
	}
	block := h.j.routed.BlockSize
	cached := h.room.CachedBlocks * block
	if h.flow == nil {
		h.flow = h.s.network.open(h.from, h.j.worker, h.arrived)
	}
	tokens := max(0, h.computed-cached)
	whole := h.held != nil
	if !whole {
		tokens = tokens / block * block // full blocks are written
	}
	return h.flow.offer(float64(tokens)*h.from.profile.KV.BytesPerToken, whole)
}

// arrived is called when all KV has come.
func (h *hop) arrived() error {
	if h.over {
		return nil
	}
	h.j.s.tally.moved(h)
	h.room.Start(h.from.name)
	return errors.Join(h.end(), h.j.worker.step())
}

// abandon ends the hop of a request that does not need it, or no longer.
func (h *hop) abandon() error {
	if h == nil || h.over || h.unwanted {
		return nil
	}
	h.unwanted = true
	if h.prompt != nil && h.held == nil {
		return nil // what is being computed ends, as in a prefill worker whose room nobody joins
	}
	return h.end()
}

// expire ends the hop at its deadline, wherever it is.
func (h *hop) expire() error {
	if h.over {
		return nil
	}
	j := h.j
	own := func(o *hop) bool { return o == h }
	h.s.messages = slices.DeleteFunc(h.s.messages, own)
	if h.prompt != nil && h.held == nil {
		h.prompt.Cancel()
		h.from.hops = slices.DeleteFunc(h.from.hops, own)
	}
	waits := h.room != nil
	called := j.worker != nil
	if err := h.end(); err != nil || h.unwanted {
		return err
	}
	switch {
	case waits:
		h.fallBack()
		return j.worker.step()
	case !called: // prefill-first, one after the other: it has waited for this
		j.hop = nil
		if slices.Contains(h.s.stranded, j) {
			return nil // or for a decode worker
		}
		if done, err := j.keepLocal(router.WhyPrefillTimeout); done || err != nil {
			return err
		}
		return j.decode()
	}
	return nil
}

func (h *hop) fallBack() {
	if h.room != nil {
		h.room.Fallback(router.WhyPrefillTimeout)
		h.room = nil
	}
}

// end gives back what the hop holds.
func (h *hop) end() error {
	if h.over {
		return nil
	}
	h.over = true
	h.s.flying--
	if h.flow != nil {
		h.flow.close()
	}
	if h.held != nil {
		h.held.Release()
	}
	if h.flight != nil {
		h.flight.End()
	} else if h.from != nil {
		h.from.held--
	}
	if h.from == nil {
		return nil
	}
	return errors.Join(h.from.step(), h.s.serveQueue())
}
