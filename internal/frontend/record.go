package frontend

import (
	"context"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Bounds of the memory of a record beside cluster.LoadKept, some 12 MB.
const (
	recordedRequests = 1 << 17
	recordedBlocks   = 1 << 19 // of all requests together
	// One message of an answer has at most so many.
	toldRecorded = 1 << 9
	toldBlocks   = 1 << 13
)

// record remembers the load of the last hour: when requests came, how long prompts and answers were, and where
// prompts begin alike.
type record struct {
	mu     sync.Mutex
	list   []cluster.RecordedRequest // in the order in which they ended; those before head are forgotten
	head   int
	blocks int
	since  time.Time // all that ended later is in list; zero while nothing is recorded
}

// add remembers a request that has ended.
func (r *record) add(now time.Time, q cluster.RecordedRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(now)
	r.list = append(r.list, q)
	r.blocks += len(q.Blocks)
	for r.head < len(r.list) {
		oldest := &r.list[r.head]
		full := len(r.list)-r.head > recordedRequests || r.blocks > recordedBlocks
		if !full && now.Sub(oldest.At) <= cluster.LoadKept {
			break
		}
		if full && oldest.At.After(r.since) {
			r.since = oldest.At
		}
		r.blocks -= len(oldest.Blocks)
		*oldest = cluster.RecordedRequest{}
		r.head++
	}
	if r.head > len(r.list)/2 {
		n := copy(r.list, r.list[r.head:])
		clear(r.list[n:])
		r.list, r.head = r.list[:n], 0
	}
}

// begin notes since when requests are remembered.
func (r *record) begin(now time.Time) {
	if r.since.IsZero() {
		r.since = now
	}
}

// forget forgets everything.
func (r *record) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.head, r.blocks, r.since = nil, 0, 0, time.Time{}
}

// of returns what is remembered of the time from a moment on, and from when on that is all.
func (r *record) of(now, from time.Time) (out []cluster.RecordedRequest, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(now)
	since = r.since
	for _, t := range []time.Time{from, now.Add(-cluster.LoadKept)} {
		if t.After(since) {
			since = t
		}
	}
	for _, q := range r.list[r.head:] {
		if !q.At.Before(since) {
			out = append(out, q)
		}
	}
	return out, since
}

// coarse returns the hashes of a prompt as a record has them.
func coarse(tokens []uint32, media []blockhash.Media, seed uint64) []uint64 {
	c := blockhash.Chain{BlockSize: cluster.LoadBlock, Seed: seed, Media: media}
	c.Extend(tokens)
	full := len(c.Seq) * cluster.LoadBlock
	rest := len(tokens) - full
	if rest == 0 {
		return c.Seq
	}
	last := blockhash.Chain{BlockSize: rest, Seed: seed}
	for _, m := range media {
		if m.End > full {
			last.Media = append(last.Media, blockhash.Media{Start: max(m.Start-full, 0), End: m.End - full, Key: m.Key})
		}
	}
	last.Extend(tokens[full:])
	if full == 0 {
		return last.Seq
	}
	return append(c.Seq, blockhash.Next(c.Seq[len(c.Seq)-1], last.Seq[0], seed))
}

// record remembers the answers of a request. j.mu is held and all choices have ended.
func (j *job) record(now time.Time) {
	if !j.f.cfg.Settings().RecordLoad {
		j.f.record.forget()
		return
	}
	var hashed []uint64 // of the prompt of the choice before
	for i, c := range j.choices {
		// What an adapter is asked for is load of its model's workers.
		q := cluster.RecordedRequest{At: j.arrived, Model: c.gen.m.declared(), Prompt: j.prompts[c.prompt], Output: c.tokens}
		if c.tokens > 0 {
			if c.raw { // nobody here knows its tokens
				j.f.record.add(now, q)
				continue
			}
			if hashed == nil || j.choices[i-1].prompt != c.prompt {
				hashed = coarse(c.gen.req.TokenIDs[:q.Prompt], protocol.Spans(c.gen.req.Media), c.gen.m.card.HashSeed)
			}
			q.Blocks = hashed
		}
		j.f.record.add(now, q)
	}
}

// sendLoad answers an operator's query.
func (f *Frontend) sendLoad(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.LoadRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	now := time.Now()
	if !f.cfg.Settings().RecordLoad {
		f.record.forget()
		return send(cluster.RecordedLoad{Frontend: f.cfg.Node, Off: true, Since: now})
	}
	var from time.Time
	if req.Since > 0 {
		from = now.Add(-req.Since)
	}
	all, since := f.record.of(now, from)
	for {
		n, blocks := 0, 0
		for n < len(all) && n < toldRecorded && (n == 0 || blocks+len(all[n].Blocks) <= toldBlocks) {
			blocks += len(all[n].Blocks)
			n++
		}
		if err := send(cluster.RecordedLoad{Frontend: f.cfg.Node, Since: since, Requests: all[:n]}); err != nil {
			return err
		}
		if all = all[n:]; len(all) == 0 {
			return nil
		}
	}
}
