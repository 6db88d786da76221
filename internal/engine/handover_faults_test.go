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

var handoverPhases = []string{"exported", "imported", "copying", "paused", "committed"}

func slowSteps(d time.Duration) mock.Options {
	return mock.Options{BlockSize: 16, StepTime: func(int, int) time.Duration { return d }}
}

// waitExportable waits until a sequence can be moved.
func waitExportable(t *testing.T, e *engine.Engine, id string) {
	t.Helper()
	patience.Until(t, id+" is exportable", func() bool {
		ids, err := e.Exportable(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(ids, id)
	})
}

// A client that leaves in any phase ends the sequence in both engines.
func TestCancelWhileMoving(t *testing.T) {
	for _, phase := range handoverPhases {
		t.Run(phase, func(t *testing.T) {
			r := seeded(t)
			s := sites(t, 2, engine.Config{NumBlocks: 64}, slowSteps(time.Millisecond))
			req := request("a", prompt(r, 100), 500)
			stream := submit(t, s[0].Engine, req)
			waitExportable(t, s[0].Engine, "a")
			_, err := move(t, s[0], s[1], req, 16, 2, func(at string) {
				if at == phase {
					stream.Cancel()
					if err := s[0].Check(t.Context(), false); err != nil {
						t.Error(err)
					}
				}
			})
			if !errors.Is(err, engine.ErrGone) {
				t.Errorf("moved all the same: %v", err)
			}
			if _, last, _ := collect(t, stream); last.Finish != protocol.FinishCancelled {
				t.Errorf("finished with %q", last.Finish)
			}
			waitIdle(t, s[0].Engine)
			waitIdle(t, s[1].Engine)
		})
	}
}

// A move that is given up in any phase costs nothing: the sequence goes on.
func TestAbandonedMove(t *testing.T) {
	for _, phase := range handoverPhases[:4] {
		t.Run(phase, func(t *testing.T) {
			r := seeded(t)
			e, _ := start(t, engine.Config{NumBlocks: 64}, slowSteps(200*time.Microsecond))
			q := prompt(r, 100)
			stream := submit(t, e, request("a", q, 150))
			waitExportable(t, e, "a")
			x, err := e.Export(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Export(t.Context(), "a"); !errors.Is(err, engine.ErrNotMovable) {
				t.Errorf("exported twice: %v", err)
			}
			if phase != "exported" {
				if full, err := x.Full(t.Context(), 0); err != nil || len(full) < 6 {
					t.Errorf("%d full blocks, %v", len(full), err)
				}
			}
			if phase == "paused" {
				st, _, err := x.Pause(t.Context(), 6)
				if err != nil {
					t.Fatal(err)
				}
				x.Resume()
				for st2 := st; st2.Computed == st.Computed; { // it runs again
					if st2, err = x.State(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if _, _, err := x.Pause(t.Context(), 6); err != nil {
					t.Fatal(err)
				}
			}
			x.Abandon()
			x.Abandon()
			if got, last, _ := collect(t, stream); !equal(got, mock.Continue(q, 150, vocab)) || last.Finish != protocol.FinishLength {
				t.Errorf("got %v %q", got, last.Finish)
			}
			waitIdle(t, e)
		})
	}
}

func TestImportRefusals(t *testing.T) {
	r := seeded(t)
	s := sites(t, 1, engine.Config{NumBlocks: 16, MaxSeqs: 2, MaxModelLen: 300}, slowSteps(time.Millisecond))[0]
	runs := submit(t, s.Engine, request("runs", prompt(r, 20), 200))
	waitExportable(t, s.Engine, "runs")
	if err := s.Check(t.Context(), false); err != nil || s.Check(t.Context(), true) == nil {
		t.Errorf("while a sequence runs the pool is wrong (%v), or idle", err)
	}
	refused := func(what string, req engine.Request, room int, want error) {
		t.Helper()
		if i, err := s.Import(t.Context(), req, room); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
			if err == nil {
				i.Release(nil)
			}
		}
	}
	refused("too many blocks", request("a", prompt(r, 250), 10), 260, engine.ErrNoBlocks)
	refused("room for too many blocks", request("a", prompt(r, 20), 10), 280, engine.ErrNoBlocks)
	refused("a name that is taken", request("runs", prompt(r, 20), 10), 30, engine.ErrBadRequest)
	refused("too long", request("a", prompt(r, 300), 10), 310, engine.ErrTooLong)
	scored, five := request("a", prompt(r, 20), 10), 5
	scored.Output.PromptLogprobs = &five
	refused("with scores of its prompt", scored, 30, engine.ErrBadRequest)
	least, err := s.Import(t.Context(), request("least", prompt(r, 20), 10), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(least.Blocks) == 0 {
		t.Error("no blocks for the tokens that there are")
	}
	least.Release(nil)
	one, err := s.Import(t.Context(), request("one", prompt(r, 20), 10), 30)
	if err != nil {
		t.Fatal(err)
	}
	refused("no slot", request("a", prompt(r, 20), 10), 30, engine.ErrQueueFull)
	for what, bad := range map[string]struct{ more, computed int }{
		"no KV": {0, -1}, "KV of tokens that are not there": {0, 20}, "more KV than blocks": {60, 70}, "more tokens than wanted": {10, 29},
	} {
		if err := one.Commit(make([]uint32, bad.more), bad.computed); !errors.Is(err, engine.ErrBadRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := one.Commit([]uint32{vocab}, 20); !errors.Is(err, engine.ErrBadRequest) {
		t.Errorf("a token that does not exist: %v", err)
	}
	one.Release(nil)
	select {
	case <-one.Context().Done():
	case <-time.After(patience.Soon):
		t.Error("who waits for an import that was released waits on")
	}
	if err := s.StopAdmission(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("while it drains", request("a", prompt(r, 20), 10), 30, engine.ErrDraining)
	runs.Cancel()
	collect(t, runs)
	waitIdle(t, s.Engine)
}

// Blocks that a writer may still reach stay out of use until it is certain that it
// does not.
func TestImportQuarantine(t *testing.T) {
	r := seeded(t)
	s := sites(t, 1, engine.Config{NumBlocks: 16}, mock.Options{BlockSize: 16})[0]
	i, err := s.Import(t.Context(), request("a", prompt(r, 60), 10), 70)
	if err != nil {
		t.Fatal(err)
	}
	lift := i.Quarantine()
	if err := s.Check(t.Context(), false); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Quarantined != 5 || st.KVUsed() != 5 {
		t.Errorf("%+v, want 5 blocks in quarantine", st)
	}
	lift()
	waitIdle(t, s.Engine)
}

// A sequence that loses its blocks to an older one cannot be moved any more.
func TestPreemptedWhileMoving(t *testing.T) {
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 16}, slowSteps(time.Millisecond))
	p, q := prompt(r, 40), prompt(r, 40)
	older := submit(t, e, request("older", p, 200))
	waitExportable(t, e, "older")
	newer := submit(t, e, request("newer", q, 200))
	waitExportable(t, e, "newer")
	x, err := e.Export(t.Context(), "newer")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-x.Context().Done():
	case <-time.After(time.Minute):
		t.Error("it was never preempted")
	}
	if _, err := x.Full(t.Context(), 0); !errors.Is(err, engine.ErrGone) {
		t.Errorf("blocks of a preempted sequence: %v", err)
	}
	x.Abandon()
	for i, s := range []*engine.Stream{older, newer} {
		if got, _, _ := collect(t, s); !equal(got, mock.Continue([][]uint32{p, q}[i], 200, vocab)) {
			t.Errorf("sequence %d: got %v", i, got)
		}
	}
	waitIdle(t, e)
}

// What waits is given back to whoever sent it, what runs stays.
func TestGiveBack(t *testing.T) {
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 64, MaxSeqs: 3}, slowSteps(time.Millisecond))
	p := prompt(r, 40)
	runs := submit(t, e, request("runs", p, 60))
	waitExportable(t, e, "runs")
	remote := request("remote", prompt(r, 40), 10)
	holding := make(chan struct{})
	remote.Decide = always
	remote.Remote = func(res *engine.Reservation) {
		close(holding)
		<-res.Context().Done()
		res.Release(context.Cause(res.Context()))
	}
	gone := []*engine.Stream{submit(t, e, remote)}
	<-holding
	for i := range 2 { // the first of them gets the last slot
		gone = append(gone, submit(t, e, request(fmt.Sprint("w", i), prompt(r, 40), 10000)))
		if i == 0 {
			waitExportable(t, e, "w0")
		}
	}
	if n, err := e.GiveBack(t.Context()); err != nil || n != 2 || e.Stats().MovedTotal > 2 {
		t.Errorf("%d given back, want 2 (%v)", n, err)
	}
	for i, s := range []*engine.Stream{gone[0], gone[2]} {
		if _, last, _ := collect(t, s); !errors.Is(last.Err, engine.ErrDraining) {
			t.Errorf("sequence %d finished with %q %v", i, last.Finish, last.Err)
		}
	}
	gone[1].Cancel()
	if got, _, _ := collect(t, runs); !equal(got, mock.Continue(p, 60, vocab)) {
		t.Errorf("got %v", got)
	}
	waitIdle(t, e)
}

// The engine stops only after those who move sequences have let go.
func TestStopWhileMoving(t *testing.T) {
	r := seeded(t)
	b := mock.New(slowSteps(time.Millisecond))
	if _, err := b.AllocKV(64); err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{NumBlocks: 64}, b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	out := submit(t, e, request("out", prompt(r, 60), 100))
	waitExportable(t, e, "out")
	x, err := e.Export(t.Context(), "out")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := x.Pause(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var in []*engine.Import
	for _, id := range []string{"reserved", "parked"} {
		i, err := e.Import(t.Context(), request(id, prompt(r, 30), 10), 40)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, i)
	}
	if err := in[1].Commit(nil, 29); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, last, _ := collect(t, out); !errors.Is(last.Err, engine.ErrClosed) {
		t.Errorf("finished with %q %v", last.Finish, last.Err)
	}
	for _, c := range []context.Context{x.Context(), in[0].Context(), in[1].Context()} {
		<-c.Done()
	}
	select {
	case <-ended:
		t.Error("Run returned while blocks were out")
	case <-time.After(20 * time.Millisecond):
	}
	if err := e.Check(t.Context(), false); err != nil {
		t.Error(err)
	}
	if i, err := e.Import(t.Context(), request("late", prompt(r, 30), 10), 40); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("an engine that stops reserves: %v %v", i, err)
	}
	x.Complete(protocol.Moved{})
	in[0].Release(nil)
	if _, last, _ := collect(t, in[1].Attach("a", 0)); !errors.Is(last.Err, engine.ErrClosed) {
		t.Errorf("a parked sequence runs in an engine that stops: %q %v", last.Finish, last.Err)
	}
	<-ended
	if err := e.Check(t.Context(), true); err != nil {
		t.Error(err)
	}
}
