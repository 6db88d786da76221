package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// pair is a decode engine whose prompts are prefilled by a second engine and
// copied block by block, as a transfer would.
type pair struct {
	decode, prefill       *engine.Engine
	decodeMem, prefillMem []byte
	blockBytes            int
}

func startPair(t *testing.T, decode, prefill engine.Config, opts mock.Options) *pair {
	t.Helper()
	p := &pair{blockBytes: int(mock.New(opts).Info().KV.BlockBytes())}
	p.decode, p.decodeMem = start(t, decode, opts)
	p.prefill, p.prefillMem = start(t, prefill, opts)
	return p
}

// fill prefills a reservation on the other engine and copies the blocks.
func (p *pair) fill(r *engine.Reservation) error {
	held, err := p.prefill.Prefill(r.Context(), engine.PrefillRequest{ID: r.RequestID, Tokens: r.Prompt[:r.Wanted()]})
	if err != nil {
		return err
	}
	defer held.Release()
	for i := r.CachedBlocks; i < len(r.Blocks); i++ {
		copy(p.block(p.decodeMem, r.Blocks[i]), p.block(p.prefillMem, held.Blocks[i]))
	}
	return nil
}

func (p *pair) block(mem []byte, id int32) []byte {
	return mem[int(id)*p.blockBytes : (int(id)+1)*p.blockBytes]
}

func always(prompt, cached int) engine.Decision { return engine.Decision{Remote: true, Why: "test"} }

func TestRemotePrefillGivesTheSameTokens(t *testing.T) {
	for _, tc := range []struct {
		name            string
		decode, prefill engine.Config
	}{
		{"roomy", engine.Config{NumBlocks: 256}, engine.Config{NumBlocks: 256}},
		{"small pools", engine.Config{NumBlocks: 24, MaxSeqs: 6}, engine.Config{NumBlocks: 20, MaxBatchTokens: 33}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := seeded(t)
			p := startPair(t, tc.decode, tc.prefill, mock.Options{BlockSize: 16})
			shared := prompt(r, 48)
			var streams []*engine.Stream
			var want [][]uint32
			for i, n := range []int{1, 2, 15, 16, 17, 18, 31, 32, 33, 64, 65, 100, 150, 150, 33, 90} {
				q := prompt(r, n)
				if i%3 == 0 {
					q = append(append([]uint32{}, shared...), q...)
				}
				req := request(fmt.Sprint("r", i), q, 20)
				req.Decide = always
				req.Remote = func(res *engine.Reservation) {
					if err := p.fill(res); err != nil {
						res.Release(err)
						return
					}
					res.Start("prefill-1")
				}
				streams, want = append(streams, submit(t, p.decode, req)), append(want, mock.Continue(q, 20, vocab))
			}
			for i, s := range streams {
				got, last, _ := collect(t, s)
				if !equal(got, want[i]) || last.Finish != protocol.FinishLength {
					t.Errorf("request %d: got %v %q %v, want %v", i, got, last.Finish, last.Err, want[i])
				}
			}
			st := p.decode.Stats()
			if st.RemotePrefillTotal == 0 || st.RemoteWait != 0 {
				t.Errorf("stats: %+v", st)
			}
			if got, want := st.RemotePrefillTotal+st.LocalPrefillTotal, uint64(len(streams)); got != want {
				t.Errorf("remote and local prefills sum up to %d, want %d", got, want)
			}
		})
	}
}

func TestReservationEnds(t *testing.T) {
	r := seeded(t)
	p := startPair(t, engine.Config{NumBlocks: 64}, engine.Config{NumBlocks: 64}, mock.Options{BlockSize: 16})
	q := prompt(r, 100)
	want := mock.Continue(q, 10, vocab)
	garble := func(res *engine.Reservation) {
		for _, b := range res.Blocks[res.CachedBlocks:] {
			clear(p.block(p.decodeMem, b))
		}
	}
	run := func(id string, remote func(*engine.Reservation)) ([]uint32, engine.Output, *engine.FirstToken) {
		req := request(id, q, 10)
		req.Decide, req.Remote = always, remote
		return collect(t, submit(t, p.decode, req))
	}
	t.Run("fallback", func(t *testing.T) {
		got, _, first := run("a", func(res *engine.Reservation) { garble(res); res.Fallback("timeout") })
		if !equal(got, want) || first.Why != "timeout" || first.Remote {
			t.Errorf("got %v %+v, want %v", got, first, want)
		}
	})
	if _, err := p.decode.ClearCache(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("failure", func(t *testing.T) {
		boom := errors.New("boom")
		_, last, _ := run("b", func(res *engine.Reservation) { res.Release(boom) })
		if last.Finish != protocol.FinishError || !errors.Is(last.Err, boom) {
			t.Errorf("got %q %v, want boom", last.Finish, last.Err)
		}
	})
	t.Run("quarantine", func(t *testing.T) {
		blocks := make(chan int, 1)
		lift := make(chan func(), 1)
		got, _, first := run("c", func(res *engine.Reservation) {
			blocks <- len(res.Blocks)
			lift <- res.Quarantine("unconfirmed")
		})
		// A late writer must not hurt: the sequence runs in other blocks.
		if !equal(got, want) || first.Why != "unconfirmed" {
			t.Errorf("got %v %+v, want %v", got, first, want)
		}
		if st, want := p.decode.Stats(), <-blocks; st.Quarantined != want || st.RemoteWait != 0 {
			t.Errorf("%d blocks in quarantine, want %d; %d wait for their prefill, want none", st.Quarantined, want, st.RemoteWait)
		}
		(<-lift)()
	})
	t.Run("cancelled while remote", func(t *testing.T) {
		holding, release := make(chan struct{}), make(chan struct{})
		req := request("d", prompt(r, 90), 10)
		req.Decide = always
		req.Remote = func(res *engine.Reservation) {
			close(holding)
			<-res.Context().Done()
			<-release
			res.Release(nil)
		}
		s := submit(t, p.decode, req)
		<-holding
		s.Cancel()
		if _, last, _ := collect(t, s); last.Finish != protocol.FinishCancelled {
			t.Errorf("finished with %q, want cancelled", last.Finish)
		}
		if err := p.decode.Check(t.Context(), false); err != nil {
			t.Error(err)
		}
		if st := p.decode.Stats(); st.KVIncoming == 0 {
			t.Error("blocks were given up while somebody may still write to them")
		}
		close(release)
	})
	waitIdle(t, p.decode)
}

// waitIdle waits until no block of e is in use.
func waitIdle(t *testing.T, e *engine.Engine) {
	t.Helper()
	patience.Until(t, "no block is in use", func() bool { return e.Check(t.Context(), true) == nil })
}

func TestPrefillProgressAndHold(t *testing.T) {
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 16, MaxBatchTokens: 20}, mock.Options{BlockSize: 16})
	q := prompt(r, 100)
	var steps []int
	held, err := e.Prefill(t.Context(), engine.PrefillRequest{ID: "a", Tokens: q, Progress: func(n int, blocks []int32) {
		if len(blocks) != 7 {
			t.Errorf("block table of %d blocks, want 7", len(blocks))
		}
		steps = append(steps, n)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(steps) != "[0 20 40 60 80 100]" {
		t.Errorf("progress %v", steps)
	}
	if st := e.Stats(); st.KVOutgoing != 7 {
		t.Errorf("%d blocks outgoing, want 7", st.KVOutgoing)
	}
	held.Release()
	again, err := e.Prefill(t.Context(), engine.PrefillRequest{ID: "b", Tokens: q[:96]})
	if err != nil {
		t.Fatal(err)
	}
	if again.Cached != 96 {
		t.Errorf("%d tokens cached, want all 96", again.Cached)
	}
	again.Release()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Prefill(ctx, engine.PrefillRequest{ID: "c", Tokens: q}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled prefill: %v", err)
	}
	waitIdle(t, e)
}

// The engine stops only after holders of reservations have let go.
func TestStopWaitsForReservations(t *testing.T) {
	b := mock.New(mock.Options{BlockSize: 16, VocabSize: vocab})
	if _, err := b.AllocKV(16); err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{NumBlocks: 16}, b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	holding, release := make(chan struct{}), make(chan struct{})
	req := request("a", make([]uint32, 40), 5)
	req.Decide = always
	req.Remote = func(res *engine.Reservation) {
		close(holding)
		<-res.Context().Done()
		<-release
		res.Release(nil)
	}
	s := submit(t, e, req)
	<-holding
	cancel()
	if _, last, _ := collect(t, s); last.Finish != protocol.FinishError {
		t.Errorf("finished with %q, want error", last.Finish)
	}
	select {
	case <-ended:
		t.Error("Run returned while blocks were out")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	<-ended
	if err := e.Check(t.Context(), true); err != nil {
		t.Error(err)
	}
}

// Where a prompt is computed is decided with what was admitted before it, in the same step,
// too.
func TestDecisionsKnowThePromptsBefore(t *testing.T) {
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 30}, mock.Options{BlockSize: 16, StepTime: func(int, int) time.Duration { return time.Millisecond }})
	first := submit(t, e, request("first", prompt(r, 380), 1000)) // in 24 of the blocks: the others wait
	type known struct{ prompts, tokens, used int }
	var got []known
	var streams []*engine.Stream
	for i, n := range []int{100, 150, 50} {
		q := request(fmt.Sprint("r", i), prompt(r, n), 3)
		q.Decide = func(int, int) engine.Decision {
			s := e.Stats()
			got = append(got, known{s.Prefilling, s.PrefillTokens, s.KVUsed()})
			return engine.Decision{}
		}
		q.Remote = func(res *engine.Reservation) { res.Fallback("none") }
		streams = append(streams, submit(t, e, q))
	}
	patience.Until(t, "all wait", func() bool { return e.Stats().Waiting == len(streams) })
	first.Cancel()
	for _, s := range streams {
		collect(t, s)
	}
	if want := []known{{0, 0, 0}, {1, 100, 7}, {2, 250, 17}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s := e.Stats(); s.Prefilling != 0 || s.PrefillTokens != 0 {
		t.Errorf("in the end: %+v", s)
	}
}
