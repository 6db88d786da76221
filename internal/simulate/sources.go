package simulate

import (
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/bench/arrival"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/mooncake"
)

// Open is an open-loop load: conversations of a source begin at the times of a schedule,
// whether or not earlier ones have been answered. The second turn of a conversation comes
// when the first is answered, with that answer in its prompt.
type Open struct {
	From     workload.Source
	Schedule *arrival.Schedule
	// Until ends the load: no conversation begins then or later. Count, if positive, bounds the
	// conversations.
	Until time.Duration
	Count int

	next int
}

// Next implements [Source].
func (o *Open) Next() (Request, bool) {
	at, ok := o.Schedule.Next()
	if !ok || at >= o.Until && o.Until > 0 || o.next >= o.Count && o.Count > 0 {
		return Request{}, false
	}
	c, ok := o.From.Conversation(o.next)
	if !ok || len(c.Turns) == 0 {
		return Request{}, false
	}
	o.next++
	return turn(at, uint64(o.next), nil, c.Turns, 0), true
}

// turn makes the request of the first of some turns, after what was said before.
func turn(at time.Duration, conversation uint64, before []workload.Part, turns []workload.Turn, number uint64) Request {
	t := turns[0]
	r := Request{At: at, Parts: slices.Concat(before, t.Parts), Output: t.Output}
	if len(turns) > 1 {
		answer := workload.Part{Text: kindAnswer<<56 | conversation<<16 | number, Tokens: t.Output}
		r.Answer = []workload.Part{answer}
		said := append(slices.Clip(r.Parts), answer)
		r.Then = func(now time.Duration) (Request, bool) {
			return turn(now, conversation, said, turns[1:], number+1), true
		}
	}
	return r
}

// Trace replays the requests of a trace, so many times as fast as they came. If Repeat is
// above 1, the trace is played so often, one after the other, each time with new texts.
//
// A request continues an earlier one if its prompt begins with all full blocks of the
// earlier prompt and has room for the answer, the last of these blocks came with the earlier
// request, and no request before it continues that one. The answer then is what the later
// prompt has in this place: workers find it in their caches, as they would.
type Trace struct {
	requests []mooncake.Request
	answers  []int32 // the request that continues this one, or -1
	speed    float64
	repeat   int
	at       int // requests given so far
}

// NewTrace returns the load of a trace, which must be in order of time.
func NewTrace(requests []mooncake.Request, speed float64, repeat int) *Trace {
	t := &Trace{requests: requests, answers: make([]int32, len(requests)), speed: speed, repeat: max(1, repeat)}
	known := map[uint64]bool{}
	last := map[uint64]int32{} // request whose last full block it is and that brought it
	for i := range requests {
		r := &requests[i]
		t.answers[i] = -1
		full, brought := r.Input/mooncake.BlockSize, false
		for _, id := range r.Blocks[:min(full, len(r.Blocks))] {
			brought = !known[id]
			known[id] = true
			if o, ok := last[id]; ok && requests[o].Input+requests[o].Output <= r.Input {
				delete(last, id)
				t.answers[o] = int32(i)
			}
		}
		if brought {
			last[r.Blocks[full-1]] = int32(i)
		}
	}
	return t
}

// Span returns how long one play of the trace takes: to its last arrival, and the mean time
// between two more.
func (t *Trace) Span() time.Duration {
	n := len(t.requests)
	if n == 0 {
		return 0
	}
	whole := t.requests[n-1].At - t.requests[0].At
	return time.Duration(float64(whole) * (1 + 1/float64(max(1, n-1))) / t.speed)
}

// kindBlock is that of the texts of a trace's blocks.
const kindBlock = 0xfd

// Next implements [Source].
func (t *Trace) Next() (Request, bool) {
	n := len(t.requests)
	if n == 0 || t.at >= n*t.repeat {
		return Request{}, false
	}
	i, round := t.at%n, uint64(t.at/n)
	t.at++
	q := t.requests[i]
	at := time.Duration(round)*t.Span() + time.Duration(float64(q.At-t.requests[0].At)/t.speed)
	r := Request{At: at, Parts: blocks(round, q.Blocks, 0, q.Input), Output: q.Output}
	if k := t.answers[i]; k >= 0 {
		r.Answer = blocks(round, t.requests[k].Blocks, q.Input, q.Output)
	}
	return r, true
}

// blocks returns n tokens, from a position on, of a prompt that consists of blocks.
func blocks(round uint64, ids []uint64, from, n int) (parts []workload.Part) {
	for ; n > 0; from = 0 {
		for from >= mooncake.BlockSize {
			ids, from = ids[1:], from-mooncake.BlockSize
		}
		take := min(n, mooncake.BlockSize-from)
		parts = append(parts, workload.Part{Text: kindBlock<<56 | round<<40 ^ ids[0], Tokens: take})
		ids, n = ids[1:], n-take
	}
	return parts
}
