package worker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// followed is what a client got across all workers that its request was on.
type followed struct {
	result
	moves, replays int
}

// follow does what a frontend does: it follows a sequence that moves, and computes it
// again elsewhere when its worker is lost or sends it away.
func (w *world) follow(ctx context.Context, worker string, req protocol.PreprocessedRequest) (all followed) {
	failed := map[string]bool{}
	id := req.RequestID
	req.TokenIDs = slices.Clone(req.TokenIDs)
	for n := 1; ; n++ {
		got := w.generate(ctx, worker, req)
		req.Advance(got.tokens)
		req.Handover, req.RequestID = "", fmt.Sprint(id, "~", n)
		all.tokens = append(all.tokens, got.tokens...)
		all.probs.Append(&got.probs)
		all.finish, all.err, all.moved = got.finish, got.err, got.moved
		var remote *requestplane.RemoteError
		switch {
		case got.moved != nil:
			all.moves++
			worker, req.Handover = got.moved.Worker, got.moved.Handover
			clear(failed)
		case ctx.Err() == nil && (errors.Is(got.err, requestplane.ErrDisconnected) || errors.Is(got.err, errNoWorker) || requestplane.NotStarted(got.err) ||
			errors.As(got.err, &remote) && remote.Kind == requestplane.KindUnavailable):
			all.replays++
			failed[worker] = true
			worker = ""
			within(time.Minute, func() bool {
				for _, i := range w.calls.All() {
					if !failed[i.Worker] {
						worker = i.Worker
					}
				}
				return worker != ""
			})
		default:
			return all
		}
	}
}

// demand is a request that carries along all that can move with a sequence.
func demand(id string, tokens []uint32, n, variant int) protocol.PreprocessedRequest {
	five := 5
	req := request(id, tokens, n)
	req.Sampling = protocol.SamplingOptions{Temperature: 1, Seed: uint64(len(tokens)*1000 + variant)}
	switch variant % 4 {
	case 0:
		req.Sampling = protocol.SamplingOptions{}
	case 1:
		req.Sampling.RepetitionPenalty, req.Sampling.FrequencyPenalty, req.Sampling.PresencePenalty = 1.2, 0.5, 0.3
	case 2:
		req.Output.Logprobs = &five
	case 3:
		req.Stop.StopTokenIDs, req.Stop.MinTokens = []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}, n
		req.Sampling.TopP = 0.8
	}
	return req
}

// group is a number of streams at one worker.
type group struct {
	t    *testing.T
	reqs []protocol.PreprocessedRequest
	got  []followed
	wg   sync.WaitGroup
}

// streams starts requests at a worker and waits until all of them run.
func (w *world) streams(ctx context.Context, at *running, reqs []protocol.PreprocessedRequest) *group {
	g := &group{t: w.t, reqs: reqs, got: make([]followed, len(reqs))}
	before := at.Status().Stats.Running
	for i, r := range reqs {
		g.wg.Go(func() { g.got[i] = w.follow(ctx, at.Name(), r) })
	}
	eventually(w.t, "all run", func() bool { return at.Status().Stats.Running == before+len(reqs) })
	return g
}

// sameAs waits for all streams and compares them with those of an undisturbed worker.
func (g *group) sameAs(w *world, alone *running) (moves, replays int) {
	g.t.Helper()
	g.wg.Wait()
	for i, r := range g.reqs {
		got := g.got[i]
		r.RequestID += "-alone"
		want := w.generate(g.t.Context(), alone.Name(), r)
		if got.err != nil || !slices.Equal(got.tokens, want.tokens) || got.finish != want.finish || !reflect.DeepEqual(got.probs, want.probs) {
			g.t.Errorf("%s after %d moves and %d replays: got %v %q %v, want %v %q", r.RequestID, got.moves, got.replays,
				got.tokens, got.finish, got.err, want.tokens, want.finish)
		}
		moves += got.moves
		replays += got.replays
	}
	return moves, replays
}

// drained waits for the end of a drain and returns the last status.
func (r *running) drained(t *testing.T) *cluster.DrainStatus {
	t.Helper()
	select {
	case err := <-r.ended:
		if !errors.Is(err, ErrDrained) {
			t.Errorf("Run returned %v, want ErrDrained", err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("not drained: %+v", r.Status().Drain)
	}
	r.once.Do(func() {})
	d := r.Status().Drain
	t.Logf("%s: %d finished, %d moved, %d cancelled after %s", r.Name(), d.Finished, d.Moved, d.Cancelled, time.Since(d.StartedAt))
	return d
}

func (r *running) drain(t *testing.T) {
	t.Helper()
	if err := r.Drain(t.Context(), time.Now().Add(time.Minute), false); err != nil {
		t.Fatal(err)
	}
}

// ready waits until a worker can hand over to so many others.
func (r *running) ready(t *testing.T, others int) {
	t.Helper()
	eventually(t, r.Name()+" sees the other workers", func() bool {
		n := 0
		for _, i := range r.sees(cluster.RoleDecode) {
			if i.Worker != r.Name() {
				n++
			}
		}
		return n == others
	})
}

// quiet checks that a worker holds nothing that only requests need.
func (r *running) quiet(t *testing.T) {
	t.Helper()
	eventually(t, r.Name()+" has no blocks in use", func() bool { return r.engine().Check(t.Context(), true) == nil })
	eventually(t, r.Name()+" has no tickets and transfers", func() bool {
		in, out := r.nixl().InFlight()
		return in+out+r.nixl().Tickets() == 0
	})
}

// A drain of a busy decode worker moves its sequences, several times in a row, and
// clients get what they get from a worker that nobody disturbs.
func TestDrainMovesSequences(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"local", "tcp"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			r := seeded(t)
			w := newWorld(t)
			w.tcp = over == "tcp"
			alone := w.start("worker-9", cluster.RoleDecode)
			slowDecode(2 * time.Millisecond)(&w.opts)
			var all []*running
			for i := range 3 {
				all = append(all, w.start(fmt.Sprint("worker-", i+1), cluster.RoleDecode))
			}
			alone.drain(t) // it takes part in nothing but comparisons
			alone.drained(t)
			w.opts.StepTime = nil
			all[0].ready(t, 2)
			all[1].ready(t, 2)
			var reqs []protocol.PreprocessedRequest
			for i := range 8 {
				reqs = append(reqs, demand(fmt.Sprint("r", i), prompt(r, 1+r.IntN(150)), 800, i))
			}
			g := w.streams(t.Context(), all[0], reqs)
			all[0].drain(t)
			if d := all[0].drained(t); d.Moved != len(reqs) || d.Finished+d.Cancelled != 0 || d.Sequences != len(reqs) {
				t.Errorf("drain %+v, want %d moved", d, len(reqs))
			}
			all[1].drain(t)
			second := all[1].drained(t)
			alone = w.start("worker-8", cluster.RoleDecode)
			moves, replays := g.sameAs(w, alone)
			if moves < len(reqs) || replays > 0 {
				t.Errorf("%d moves and %d replays of %d sequences", moves, replays, len(reqs))
			}
			st := all[2].Status().Stats
			if second.Cancelled > 0 || st.FinishedTotal != uint64(len(reqs)-second.Finished) || st.TransferBytesTotal == 0 {
				t.Errorf("the last worker finished %d and got %d bytes", st.FinishedTotal, st.TransferBytesTotal)
			}
			all[2].quiet(t)
		})
	}
}

// The last decode worker finishes what it has, as before, and says why nothing moves.
func TestDrainOfTheOnlyDecodeWorker(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	d := w.start("worker-1", cluster.RoleDecode)
	eventually(t, "worker is found", func() bool { return len(w.calls.Instances()) == 1 })
	p := prompt(r, 40)
	g := w.streams(t.Context(), d, []protocol.PreprocessedRequest{request("a", p, 400)})
	d.drain(t)
	eventually(t, "it says why", func() bool {
		dr := d.Status().Drain
		return dr != nil && len(dr.Open) == 1 && dr.Open[0].Why == "no other decode worker"
	})
	if st := d.drained(t); st.Finished != 1 || st.Moved != 0 {
		t.Errorf("drain %+v", st)
	}
	g.wg.Wait()
	check(t, g.got[0].result, p, 400)
}

// phase is where a fault hits a hand-over.
type phase string

const (
	atOffer    phase = "the offer"
	afterGrant phase = "the grant"
	atWrite    phase = "the write"
	atCommit   phase = "the commit"
	afterward  phase = "the end"
)

var phases = []phase{atOffer, afterGrant, atWrite, atCommit, afterward}

// trap calls hit once, when the first hand-over of a worker comes to a phase, before it
// goes on.
type trap struct {
	at   phase
	hit  func()
	done atomic.Bool
}

func (tr *trap) reach(p phase) {
	if p == tr.at && tr.done.CompareAndSwap(false, true) {
		tr.hit()
	}
}

// into sets the trap in the configuration of a worker.
func (tr *trap) into(c *Config) {
	c.Runtime.Client = trappedClient{c.Runtime.Client, tr}
	c.NIXL = func() nixl.Config {
		return nixl.Config{Key: nixltest.Key, Transports: []nixl.Transport{&trappedTransport{tcp.New(tcp.Options{}), tr}}}
	}
}

type trappedClient struct {
	requestplane.Client
	tr *trap
}

func (c trappedClient) Call(ctx context.Context, addr, id string, headers map[string]string, body any) (requestplane.Stream, error) {
	m, ok := body.(protocol.HandoverRequest)
	if !ok {
		return c.Client.Call(ctx, addr, id, headers, body)
	}
	before, after := phase(""), phase("")
	switch {
	case m.Offer != nil:
		before, after = atOffer, afterGrant
	case m.Commit != nil:
		before, after = atCommit, afterward
	}
	c.tr.reach(before)
	s, err := c.Client.Call(ctx, addr, id, headers, body)
	if err != nil {
		return nil, err
	}
	return trappedStream{s, func() { c.tr.reach(after) }}, nil
}

type trappedStream struct {
	requestplane.Stream
	received func()
}

func (s trappedStream) Recv(ctx context.Context, v any) error {
	err := s.Stream.Recv(ctx, v)
	if err == nil {
		s.received()
	}
	return err
}

type trappedTransport struct {
	nixl.Transport
	tr *trap
}

func (x *trappedTransport) Submit(r nixl.Remote, j *nixl.Job) {
	go func() {
		if j.Bytes != selfTestBytes {
			x.tr.reach(atWrite)
		}
		x.Transport.Submit(r, j)
	}()
}

// selfTestBytes tells self-tests from blocks.
const selfTestBytes = 2 << 20

// crash ends a worker as kill -9 does: when it returns, nobody gets an answer any more
// and nothing is written. The rest of what runs in it is awaited with the test.
func (r *running) crash() {
	r.cancel(errors.New("killed"))
	_ = r.server.Close()
	_ = r.nixl().Close()
}

// faulty is a cluster whose first worker is drained with a trap in its hand-overs.
type faulty struct {
	*world
	source, target *running
	group          *group
}

func newFaulty(t *testing.T, tr *trap, streams int) *faulty {
	w := newWorld(t)
	w.tcp = true
	r := seeded(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	f := &faulty{world: w}
	f.source = w.start("worker-1", cluster.RoleDecode, tr.into)
	f.target = w.start("worker-2", cluster.RoleDecode)
	f.source.ready(t, 1)
	var reqs []protocol.PreprocessedRequest
	for i := range streams {
		most := 400
		if streams == 1 { // it must not end before the source has tried another target
			most = 1000
		}
		reqs = append(reqs, demand(fmt.Sprint("r", i), prompt(r, 50+r.IntN(100)), most, i))
	}
	f.group = w.streams(t.Context(), f.source, reqs)
	return f
}

// verify waits for all streams and compares them.
func (f *faulty) verify() (moves, replays int) {
	f.t.Helper()
	f.opts.StepTime = nil
	return f.group.sameAs(f.world, f.start("worker-8", cluster.RoleDecode))
}

// A target that dies costs the hand-over, not the sequence: before the commit it goes
// on at the source, after it is computed again from what the client has.
func TestTargetDies(t *testing.T) {
	t.Parallel()
	for _, p := range phases {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			var f *faulty
			reached := make(chan struct{})
			f = newFaulty(t, &trap{at: p, hit: func() { f.target.crash(); close(reached) }}, 1)
			third := f.start("worker-3", cluster.RoleDecode) // takes what comes back
			f.source.ready(t, 2)
			// Only the one that dies is there to hand over to.
			if err := third.term.Load().announced[1].Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.source.ready(t, 1)
			f.source.drain(t)
			<-reached
			if err := third.term.Load().announced[1].Join(t.Context()); err != nil {
				t.Fatal(err)
			}
			d := f.source.drained(t)
			moves, replays := f.verify()
			if d.Moved != 1 || d.Cancelled != 0 || moves != 1 || p != afterward && replays > 0 {
				t.Errorf("drain %+v, %d moves, %d replays", d, moves, replays)
			}
			third.quiet(t)
		})
	}
}

// A source that dies leaves nothing at the target, and what it had is computed again.
func TestSourceDies(t *testing.T) {
	t.Parallel()
	for _, p := range phases {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			var f *faulty
			reached := make(chan struct{})
			f = newFaulty(t, &trap{at: p, hit: func() { f.source.crash(); close(reached) }}, 4)
			f.target.waits.handovers.Parked = 200 * time.Millisecond
			f.source.drain(t)
			<-reached
			_ = f.source.stop(errors.New("killed"))
			if _, replays := f.verify(); replays == 0 {
				t.Error("nothing was computed again")
			}
			f.target.quiet(t)
		})
	}
}

// A drain that is taken back in any phase leaves each sequence at one worker.
func TestResumeWhileMoving(t *testing.T) {
	t.Parallel()
	for _, p := range phases {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			var f *faulty
			resumed := make(chan struct{})
			reached := make(chan struct{})
			f = newFaulty(t, &trap{at: p, hit: func() {
				close(reached)
				<-resumed
			}}, 4)
			f.target.waits.handovers.Parked = 2 * time.Second // of a commit whose answer nobody hears
			f.source.drain(t)
			<-reached
			err := f.source.Resume(t.Context(), f.source.Assignment())
			close(resumed)
			if err != nil {
				t.Fatal(err)
			}
			f.source.waitState(t, cluster.StateReady)
			eventually(t, "it is found again", func() bool { return len(f.calls.Instances()) == 2 })
			if st := f.source.Status(); st.Drain != nil {
				t.Errorf("status %+v", st)
			}
			if _, replays := f.verify(); replays > 0 {
				t.Errorf("%d sequences were computed again", replays)
			}
			f.source.quiet(t)
			f.target.quiet(t)
			f.source.balanced(t, "out")
			f.target.balanced(t, "in")
			// The next drain goes as if nothing had been.
			f.opts.StepTime = nil
			f.source.drain(t)
			f.source.drained(t)
		})
	}
}

// A client that leaves in any phase frees everything at both workers.
func TestClientLeavesWhileMoving(t *testing.T) {
	t.Parallel()
	for _, p := range phases {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			f := newFaulty(t, &trap{at: p, hit: leave}, 0)
			f.target.waits.handovers.Parked = 100 * time.Millisecond
			f.group = f.streams(ctx, f.source, []protocol.PreprocessedRequest{request("a", prompt(seeded(t), 80), 1500)})
			f.source.drain(t)
			f.group.wg.Wait()
			if got := f.group.got[0]; got.err == nil {
				t.Errorf("the client left and got %+v", got)
			}
			f.source.drained(t)
			f.target.quiet(t)
		})
	}
}

// A target without room refuses; the sequences wait where they are and move when there
// is room.
func TestTargetRefuses(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	a := w.start("worker-1", cluster.RoleDecode)
	b := w.start("worker-2", cluster.RoleDecode, func(c *Config) { c.Assignment.Engine.MaxSeqs = 2 })
	a.ready(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	full := w.streams(ctx, b, []protocol.PreprocessedRequest{request("x", prompt(r, 20), 2000), request("y", prompt(r, 20), 2000)})
	p := prompt(r, 60)
	g := w.streams(t.Context(), a, []protocol.PreprocessedRequest{request("a", p, 800)})
	a.drain(t)
	eventually(t, "it says why it does not move", func() bool {
		d := a.Status().Drain
		return d != nil && len(d.Open) == 1 && strings.Contains(d.Open[0].Why, "no room elsewhere")
	})
	cancel()
	full.wg.Wait()
	if d := a.drained(t); d.Moved != 1 {
		t.Errorf("drain %+v", d)
	}
	g.wg.Wait()
	check(t, g.got[0].result, p, 800)
	b.quiet(t)
}

// Requests that wait at a worker that is drained do not wait for its sequences.
func TestDrainGivesWaitingRequestsBack(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	a := w.start("worker-1", cluster.RoleDecode, func(c *Config) { c.Assignment.Engine.MaxSeqs = 2 })
	b := w.start("worker-2", cluster.RoleDecode)
	a.ready(t, 1)
	var reqs []protocol.PreprocessedRequest
	for i := range 6 {
		reqs = append(reqs, demand(fmt.Sprint("r", i), prompt(r, 30), 300, i))
	}
	g := &group{t: t, reqs: reqs, got: make([]followed, len(reqs))}
	for i, q := range reqs {
		g.wg.Go(func() { g.got[i] = w.follow(t.Context(), a.Name(), q) })
	}
	eventually(t, "two run, four wait", func() bool { st := a.Status().Stats; return st.Running == 2 && st.Waiting == 4 })
	a.drain(t)
	if d := a.drained(t); d.Moved != 6 || d.Finished != 0 {
		t.Errorf("drain %+v, want all six moved", d)
	}
	w.opts.StepTime = nil
	if moves, replays := g.sameAs(w, w.start("worker-8", cluster.RoleDecode)); moves != 2 || replays != 4 {
		t.Errorf("%d moves, %d replays", moves, replays)
	}
	b.quiet(t)
}

// A frontend that comes too late, or with other tokens, gets its request computed.
func TestAttachTooLate(t *testing.T) {
	t.Parallel()
	r := seeded(t)
	w := newWorld(t)
	slowDecode(2 * time.Millisecond)(&w.opts)
	a := w.start("worker-1", cluster.RoleDecode)
	b := w.start("worker-2", cluster.RoleDecode)
	b.waits.handovers.Parked = 50 * time.Millisecond
	a.ready(t, 1)
	p := prompt(r, 40)
	first := make(chan result, 1)
	go func() { first <- w.generate(t.Context(), a.Name(), request("a", p, 400)) }()
	eventually(t, "it runs", func() bool { return a.Status().Stats.Running == 1 })
	a.drain(t)
	got := <-first
	if got.moved == nil || got.moved.Worker != "worker-2" || got.moved.InstanceID != b.Status().InstanceID {
		t.Fatalf("got %+v", got)
	}
	a.drained(t)
	b.quiet(t) // nobody came
	b.counts(t, 1, "dynamo_component_handovers_total", `direction="in"`, `outcome="lost"`, `reason="not followed"`)
	req := request("a~1", p, 400)
	req.Advance(got.tokens)
	req.Handover = got.moved.Handover
	rest := w.generate(t.Context(), "worker-2", req)
	if want := mock.Continue(p, 400, vocab); !slices.Equal(append(got.tokens, rest.tokens...), want) {
		t.Errorf("got %v and %v, want %v", got.tokens, rest.tokens, want)
	}
}
