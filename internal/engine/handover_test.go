package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
)

// site is an engine with the memory of its KV pool.
type site struct {
	*engine.Engine
	mem []byte
}

func sites(t *testing.T, n int, cfg engine.Config, opts mock.Options) []site {
	t.Helper()
	var out []site
	for range n {
		e, mem := start(t, cfg, opts)
		out = append(out, site{e, mem})
	}
	return out
}

// advanced is the request that goes on where a sequence stands.
func advanced(r engine.Request, st engine.ExportState) engine.Request {
	r.Tokens = st.Tokens
	r.Generated += st.Output
	r.Stop.MaxTokens -= st.Output
	r.Stop.MinTokens = max(r.Stop.MinTokens-st.Output, 0)
	return r
}

// copyBlocks copies KV as a transfer would.
func copyBlocks(blockBytes int, from site, src []int32, to site, dst []int32) {
	for i, b := range src {
		copy(to.mem[int(dst[i])*blockBytes:][:blockBytes], from.mem[int(b)*blockBytes:][:blockBytes])
	}
}

// move hands a sequence over, with some rounds while it runs. hook, if not nil, is
// called in every phase.
func move(t *testing.T, from, to site, req engine.Request, blockSize, rounds int, hook func(phase string)) (*engine.Stream, error) {
	t.Helper()
	if hook == nil {
		hook = func(string) {}
	}
	ctx := t.Context()
	blockBytes := int(mock.New(mock.Options{BlockSize: blockSize}).Info().KV.BlockBytes())
	x, err := from.Export(ctx, req.ID)
	if err != nil {
		return nil, err
	}
	defer x.Abandon()
	st, err := x.State(ctx)
	if err != nil {
		return nil, err
	}
	hook("exported")
	in, err := to.Import(ctx, advanced(req, st), len(st.Tokens)+10*blockSize)
	if err != nil {
		return nil, err
	}
	known := len(st.Tokens)
	fail := func(err error) (*engine.Stream, error) {
		in.Release(err)
		return nil, err
	}
	hook("imported")
	next := in.CachedBlocks
	for range rounds {
		full, err := x.Full(ctx, next)
		if err != nil {
			return fail(err)
		}
		copyBlocks(blockBytes, from, full, to, in.Blocks[next:])
		next += len(full)
		hook("copying")
	}
	st, rest, err := x.Pause(ctx, next)
	if err != nil {
		return fail(err)
	}
	hook("paused")
	if next+len(rest) > len(in.Blocks) {
		return fail(errors.New("it outgrew its room"))
	}
	copyBlocks(blockBytes, from, rest, to, in.Blocks[next:])
	if err := in.Commit(st.Tokens[known:], st.Computed); err != nil {
		return fail(err)
	}
	hook("committed")
	if !slices.Equal(in.Tokens(), st.Tokens) {
		t.Errorf("%s: %d tokens are committed, want %d", req.ID, len(in.Tokens()), len(st.Tokens))
	}
	if !x.Complete(protocol.Moved{Worker: "b", Handover: req.ID}) {
		return fail(engine.ErrGone)
	}
	return in.Attach("a", st.Cached), nil
}

// gathered is all output of a sequence.
type gathered struct {
	tokens []uint32
	probs  protocol.Logprobs
	finish protocol.FinishReason
	err    error
	moved  *protocol.Moved
	firsts int
}

func (g *gathered) read(ctx context.Context, s *engine.Stream) {
	for {
		o, err := s.Next(ctx)
		if err != nil {
			return
		}
		g.tokens = append(g.tokens, o.Tokens...)
		if o.Logprobs != nil {
			g.probs.Append(o.Logprobs)
		}
		if o.First != nil {
			g.firsts++
		}
		g.finish, g.err, g.moved = o.Finish, o.Err, o.Moved
	}
}

// odd allows only tokens of one parity after each token, so that a token that it did
// not see changes everything.
type odd struct{ n int }

func (c *odd) Mask(dst []uint64) error {
	for t := range vocab {
		if t%2 == c.n%2 {
			dst[t/64] |= 1 << (t % 64)
		}
	}
	return nil
}

func (c *odd) Accept(token uint32) error {
	if int(token)%2 != c.n%2 {
		return fmt.Errorf("token %d after %d", token, c.n)
	}
	c.n += int(token)/2 + 1
	return nil
}

func (c *odd) Done() bool { return false }

// variants are requests that use what a sequence carries along.
func variants(r *rand.Rand, id string, i int) engine.Request {
	five, none := 5, 0
	req := request(id, prompt(r, 1+r.IntN(150)), 40+r.IntN(40))
	req.Sampling = protocol.SamplingOptions{Temperature: 1, Seed: r.Uint64()}
	switch i % 6 {
	case 0:
		req.Sampling = protocol.SamplingOptions{}
	case 1:
		req.Sampling.RepetitionPenalty, req.Sampling.FrequencyPenalty, req.Sampling.PresencePenalty = 1.3, 0.7, 0.4
	case 2:
		req.Output.Logprobs = &five
	case 3:
		req.Output.Logprobs, req.Constraint = &none, &odd{}
	case 4:
		for t := range uint32(60) {
			req.Stop.StopTokenIDs = append(req.Stop.StopTokenIDs, t*5)
		}
		req.Stop.MinTokens = 20 + r.IntN(20)
	case 5:
		req.Sampling.BadWords = [][]uint32{{7}, {1, 2}}
		req.Sampling.TopP = 0.9
	}
	return req
}

// again is the request with a fresh constraint.
func again(req engine.Request) engine.Request {
	if req.Constraint != nil {
		req.Constraint = &odd{}
	}
	return req
}

// Sequences that move between engines, some several times, some in the middle of
// their prompt, give what they give alone.
func TestHandoverGivesTheSame(t *testing.T) {
	for _, bs := range []int{4, 16} {
		t.Run(fmt.Sprint("blocks of ", bs), func(t *testing.T) {
			r := seeded(t)
			slow := mock.Options{BlockSize: bs, StepTime: func(int, int) time.Duration { return 500 * time.Microsecond }}
			all := sites(t, 3, engine.Config{NumBlocks: 4096, MaxBatchTokens: 40, MaxSeqs: 64}, slow)
			alone, _ := start(t, engine.Config{NumBlocks: 4096}, mock.Options{BlockSize: bs})
			const n = 24
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			reqs, got, moves := make([]engine.Request, n), make([]gathered, n), make([]int, n)
			done := make(chan int, n)
			for i := range n {
				reqs[i] = variants(r, fmt.Sprint("r", i), i)
				s := submit(t, all[0].Engine, again(reqs[i]))
				at, req, pick := 0, again(reqs[i]), rand.New(rand.NewPCG(r.Uint64(), 1))
				go func() {
					defer func() { done <- i }()
					for s != nil {
						next := make(chan *engine.Stream, 1)
						to := (at + 1 + pick.IntN(2)) % 3
						go func() {
							for ctx.Err() == nil && moves[i] < 4 {
								moved, err := move(t, all[at], all[to], again(req), bs, pick.IntN(4), nil)
								if err == nil {
									next <- moved
									return
								}
								if ids, err := all[at].Exportable(ctx); err != nil || !slices.Contains(ids, req.ID) {
									if open, _, _ := all[at].OpenSequences(ctx, n); !slices.ContainsFunc(open, func(o cluster.OpenSequence) bool { return o.RequestID == req.ID }) {
										break // it has ended
									}
								}
							}
							next <- nil
						}()
						before := len(got[i].tokens)
						got[i].read(ctx, s)
						s = <-next
						if (s != nil) != (got[i].finish == protocol.FinishMoved) {
							t.Errorf("request %d: finished with %q, moved %t", i, got[i].finish, s != nil)
						}
						if s != nil {
							st := engine.ExportState{Output: len(got[i].tokens) - before, Tokens: slices.Concat(reqs[i].Tokens, got[i].tokens)}
							req, at = advanced(req, st), to
							moves[i]++
						}
					}
				}()
			}
			for range n {
				<-done
			}
			total := 0
			for i := range n {
				var want gathered
				want.read(ctx, submit(t, alone, again(reqs[i])))
				if !slices.Equal(got[i].tokens, want.tokens) || got[i].finish != want.finish || got[i].err != nil {
					t.Errorf("request %d after %d moves: got %v %q %v, want %v %q", i, moves[i], got[i].tokens, got[i].finish, got[i].err, want.tokens, want.finish)
				}
				if !reflect.DeepEqual(got[i].probs, want.probs) {
					t.Errorf("request %d after %d moves: other log probabilities", i, moves[i])
				}
				total += moves[i]
			}
			t.Logf("%d moves", total)
			if total < n {
				t.Errorf("%d moves of %d requests test little", total, n)
			}
			for _, s := range all {
				waitIdle(t, s.Engine)
			}
		})
	}
}
