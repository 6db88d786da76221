package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// stepper is a backend whose steps do nothing, for schedulers that a test drives step by
// step: a step is the unit of time.
type stepper struct {
	tokens map[uint32]int // of prompts, by their first token, as of the last step
}

func (b *stepper) Info() BackendInfo {
	return BackendInfo{VocabSize: 64, TokenLimit: 64, MaxContext: 1 << 14, TensorParallel: 1, KV: kvlayout.Shape{BlockSize: 16}}
}
func (b *stepper) AllocKV(int) (KVPool, error) { return nil, nil }
func (b *stepper) Close() error                { return nil }

func (b *stepper) Step(_ context.Context, batch []BatchSeq) error {
	b.tokens = map[uint32]int{}
	for _, s := range batch {
		if len(s.Tokens) > 1 {
			b.tokens[s.Tokens[0]] += len(s.Tokens)
		}
	}
	return nil
}

// driven is an engine without its goroutine: the test is the scheduler.
type driven struct {
	*Engine
	t  *testing.T
	b  *stepper
	id int
}

func drive(t *testing.T, cfg Config) *driven {
	t.Helper()
	cfg.ITLTarget = time.Hour
	b := &stepper{}
	e, err := New(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	return &driven{Engine: e, t: t, b: b}
}

// send queues a request for most tokens; the prompt consists of one token, repeated.
func (d *driven) send(tenant string, prompt, most int, token uint32) *sequence {
	d.t.Helper()
	d.id++
	r := Request{ID: fmt.Sprint(d.id), Tenant: tenant, Tokens: make([]uint32, prompt), Stop: protocol.StopConditions{MaxTokens: most}}
	for i := range r.Tokens {
		r.Tokens[i] = token
	}
	s, err := d.newSequence(&r)
	if err != nil {
		d.t.Fatal(err)
	}
	s.arrived = time.Now()
	if err := d.accept(s); err != nil {
		d.t.Fatal(err)
	}
	return s
}

// steps runs n steps and discards what they give.
func (d *driven) steps(n int) {
	d.t.Helper()
	for range n {
		if _, err := d.step(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
		d.outbox = d.outbox[:0]
		if err := d.pool.Check(); err != nil {
			d.t.Fatal(err)
		}
	}
}

// until runs steps until a sequence has ended, and returns how many.
func (d *driven) until(s *sequence, limit int) int {
	d.t.Helper()
	for n := range limit {
		if s.state == seqDone {
			return n
		}
		d.steps(1)
	}
	d.t.Fatalf("the sequence is %d after %d steps", s.state, limit)
	return 0
}

func (d *driven) runs(tenant string) (n int) {
	for _, s := range d.running {
		if s.tenant == tenant {
			n++
		}
	}
	return n
}

// Orders that do not reach the engine in time are errors.
func TestOrdersToAnEngineThatDoesNotListen(t *testing.T) {
	d := drive(t, Config{NumBlocks: 16})
	d.mail = make(chan func()) // nobody reads it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, order := range map[string]func(context.Context) error{
		"stop admission": d.StopAdmission, "resume admission": d.ResumeAdmission,
		"clear the cache": func(ctx context.Context) error { _, err := d.ClearCache(ctx); return err },
		"check":           func(ctx context.Context) error { return d.Check(ctx, false) },
	} {
		if err := order(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A sequence that stays after all is as old as it was: newer ones lose their blocks first.
func TestResumedSequenceKeepsItsAge(t *testing.T) {
	d := drive(t, Config{NumBlocks: 64, MaxSeqs: 8})
	list := []*sequence{d.send("a", 20, 40, 1), d.send("a", 20, 40, 2), d.send("a", 20, 40, 3)}
	d.steps(2)
	for i, s := range list {
		s.admitted = time.Unix(int64(i), 0)
	}
	x := &Export{e: d.Engine, s: list[1]}
	list[1].export, list[1].state = x, seqPaused
	d.running = slices.Delete(d.running, 1, 2)
	d.apart++
	x.resume()
	if !slices.Equal(d.running, list) || d.apart != 0 {
		t.Errorf("%d run, in another order than they came", len(d.running))
	}
}

// Of clients that hold as much, the one with the newest sequence loses a place.
func TestNewestOfEqualsIsDisplaced(t *testing.T) {
	for range 20 { // tenants are kept in maps
		d := drive(t, Config{NumBlocks: 64, MaxSeqs: 6})
		var list []*sequence
		for _, tenant := range []string{"a", "b", "a", "b", "b", "a"} {
			list = append(list, d.send(tenant, 20, 40, 1))
		}
		d.steps(1)
		newest := d.running[5]
		d.send("c", 20, 40, 1)
		d.steps(1)
		if newest.state != seqWaiting {
			t.Fatal("the newest sequence kept its place")
		}
		for _, s := range list {
			if s != newest && s.state != seqRunning {
				t.Fatalf("%s of %s is in state %d", s.id, s.tenant, s.state)
			}
		}
	}
}

// A client with one small request does not wait until the hundreds of sequences of
// another one end, and takes nothing else from it.
func TestOneTokenBesideManySequences(t *testing.T) {
	d := drive(t, Config{NumBlocks: 4096, MaxSeqs: 64})
	var many []*sequence
	for range 512 {
		many = append(many, d.send("many", 20, 400, 1))
	}
	d.steps(30)
	if n := d.runs("many"); n != 64 {
		t.Fatalf("%d sequences of the only client run, want all 64", n)
	}
	for range 50 {
		if n := d.until(d.send("one", 20, 1, 2), 100); n > 2 {
			t.Fatalf("one token came after %d steps, want at most 2", n)
		}
		d.steps(3)
		if n := d.runs("many"); n != 64 {
			t.Errorf("%d sequences of the other client run afterwards, want 64", n)
		}
	}
	// What lost its place goes on where it was, before those that never ran.
	d.until(many[63], 1000)
	if many[63].output() != 400 {
		t.Errorf("a preempted sequence gave %d tokens", many[63].output())
	}
}

// The same when the KV pool, not the number of sequences, is the limit.
func TestOneTokenBesideLongContexts(t *testing.T) {
	d := drive(t, Config{NumBlocks: 128, MaxSeqs: 64, MaxBatchTokens: 4096})
	for i := range 40 {
		d.send("long", 200, 300, uint32(i)) // 13 blocks at first
	}
	d.steps(20)
	if n := d.runs("long"); n < 5 {
		t.Fatalf("%d sequences run", n)
	}
	if n := d.until(d.send("short", 40, 1, 60), 100); n > 2 {
		t.Errorf("one token came after %d steps, want at most 2", n)
	}
}

// Two clients that want everything get about half each, without taking places from each
// other again and again.
func TestTwoGreedyClientsShare(t *testing.T) {
	d := drive(t, Config{NumBlocks: 4096, MaxSeqs: 32})
	lengths := []int{30, 50, 70, 110}
	done := map[string]int{}
	var all []*sequence
	feed := func(tenant string, i int) { all = append(all, d.send(tenant, 20, lengths[i%4], 1)) }
	for i := range 200 {
		feed("a", i)
	}
	d.steps(20)
	for i := range 50 {
		feed("b", i)
	}
	d.steps(100)
	start := map[string]int{}
	generated := func(to map[string]int) {
		for _, s := range all {
			to[s.tenant] += s.output()
		}
	}
	generated(start)
	for i := range 300 {
		feed("a", i)
		feed("b", i)
		d.steps(1)
	}
	generated(done)
	a, b := done["a"]-start["a"], done["b"]-start["b"]
	if ratio := float64(a) / float64(b); ratio < 0.8 || ratio > 1.25 {
		t.Errorf("a got %d tokens, b %d", a, b)
	}
	if n := d.count.PreemptedTotal; n > 64 {
		t.Errorf("%d preemptions", n)
	}
}

// The order of arrival holds within a tenant, and requests without one are one tenant.
func TestFirstComeFirstServedWithinATenant(t *testing.T) {
	for _, tenant := range []string{"", "x"} {
		d := drive(t, Config{NumBlocks: 512, MaxSeqs: 2})
		var all []*sequence
		for range 20 {
			all = append(all, d.send(tenant, 20, 5, 1))
		}
		d.until(all[19], 200)
		for i := 1; i < 20; i++ {
			if all[i].admitted.Before(all[i-1].admitted) {
				t.Errorf("request %d was admitted before request %d", i, i-1)
			}
		}
		if n := d.count.PreemptedTotal; n != 0 {
			t.Errorf("%d preemptions without need", n)
		}
	}
}

// A full queue refuses the newest of the client that has most in it.
func TestFullQueueIsShared(t *testing.T) {
	d := drive(t, Config{NumBlocks: 512, MaxSeqs: 2, MaxWaiting: 10})
	var many []*sequence
	for range 10 {
		many = append(many, d.send("many", 20, 5, 1))
	}
	one := d.send("one", 20, 5, 2)
	if one.state != seqWaiting || many[9].state != seqDone || many[8].state != seqWaiting {
		t.Errorf("states %d, %d and %d", one.state, many[9].state, many[8].state)
	}
	o, err := many[9].gen.out.Next(t.Context())
	if err != nil || !errors.Is(o.Err, ErrQueueFull) {
		t.Errorf("the refused one hears %v %v, want ErrQueueFull", o.Err, err)
	}
	s, err := d.newSequence(&Request{ID: "x", Tenant: "many", Tokens: []uint32{1}, Stop: protocol.StopConditions{MaxTokens: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.accept(s); !errors.Is(err, ErrQueueFull) {
		t.Errorf("one more of the same client: %v, want ErrQueueFull", err)
	}
	if n := d.waiting.Len(); n != 10 {
		t.Errorf("%d wait", n)
	}
}

// Long prompts of one client leave others their part of each step.
func TestPromptsOfTenantsShareSteps(t *testing.T) {
	d := drive(t, Config{NumBlocks: 4096, MaxSeqs: 32, MaxBatchTokens: 512})
	for range 8 {
		d.send("book", 4000, 1, 1)
	}
	d.steps(1)
	question := d.send("question", 1000, 1, 2)
	got := map[uint32]int{}
	n := 0
	for ; question.state != seqDone && n < 100; n++ {
		d.steps(1)
		for token, count := range d.b.tokens {
			got[token] += count
		}
	}
	if n > 5 {
		t.Errorf("a prompt of 1000 tokens took %d steps of 512 beside those of another client, want at most 5", n)
	}
	if got[1] < 900 {
		t.Errorf("the other client got %d tokens meanwhile, want about as many", got[1])
	}
}

// What waits for a remote prefill counts as what its client has.
func TestRemotePrefillsAreHeld(t *testing.T) {
	d := drive(t, Config{NumBlocks: 512, MaxSeqs: 8})
	for range 6 {
		d.send("a", 20, 50, 1)
	}
	d.steps(2)
	d.countRemote(&sequence{tenant: "b"}, 2)
	if s := d.send("b", 20, 50, 2); s.state != seqWaiting {
		t.Errorf("state %d", s.state)
	}
	d.steps(2)
	if a, b := d.runs("a"), d.runs("b"); a != 6 || b != 0 {
		t.Errorf("%d of a and %d of b run beside two of b that wait for KV, want 6 and 0", a, b)
	}
	d.countRemote(&sequence{tenant: "b"}, -2)
	if len(d.away) != 0 || d.remote != 0 {
		t.Errorf("left: %v", d.away)
	}
}

// When the pool is used up, whoever uses most of it gives way, not who came last.
func TestGrowthTakesBlocksOfTheLargestTenant(t *testing.T) {
	d := drive(t, Config{NumBlocks: 64, MaxSeqs: 32, MaxBatchTokens: 4096})
	for i := range 12 {
		d.send("large", 60, 400, uint32(i)) // 4 blocks at first, 29 in the end
	}
	d.steps(3)
	small := d.send("small", 20, 100, 60)
	d.until(small, 110)
	if d.count.PreemptedTotal == 0 {
		t.Error("the pool was never used up")
	}
}

// done runs steps until all sequences have ended, and fails if steps or their end take
// longer than they ever should.
func (d *driven) done(list []*sequence, limit int) (steps int) {
	d.t.Helper()
	over := make(chan bool, 1)
	go func() {
		for ; steps < limit; steps++ {
			if !slices.ContainsFunc(list, func(s *sequence) bool { return s.state != seqDone }) {
				over <- true
				return
			}
			if _, err := d.step(d.t.Context()); err != nil {
				break
			}
			d.outbox = d.outbox[:0]
		}
		over <- false
	}()
	select {
	case ok := <-over:
		if !ok {
			d.t.Fatalf("not done after %d steps, %d preemptions", steps, d.count.PreemptedTotal)
		}
	case <-time.After(patience.Soon):
		d.t.Fatal("a step has no end")
	}
	if err := d.pool.Check(); err != nil {
		d.t.Fatal(err)
	}
	return steps
}

// Two tenants whose blocks stay cached when they are preempted do not take the place from
// each other in turns.
func TestCachedSequencesDoNotSwapPlaces(t *testing.T) {
	d := drive(t, Config{NumBlocks: 22, MaxSeqs: 12})
	list := []*sequence{d.send("a", 150, 60, 1), d.send("b", 150, 60, 2)}
	n := d.done(list, 400)
	if p := d.count.PreemptedTotal; p == 0 || p > 2 {
		t.Errorf("%d preemptions in %d steps, want 1 or 2", p, n)
	}
}

// Whatever tenants send at once, all of it is done in about the steps of its work.
func TestTenantsInSmallPoolsAreDone(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := Config{NumBlocks: 20 + r.IntN(40), MaxSeqs: 1 + r.IntN(12), MaxBatchTokens: 16 + r.IntN(200)}
		d := drive(t, c)
		var list []*sequence
		work := 0
		for range 4 + r.IntN(20) {
			prompt, most := 1+r.IntN(16*c.NumBlocks/2), 1+r.IntN(60)
			list = append(list, d.send(fmt.Sprint(r.IntN(1+r.IntN(8))), prompt, most, uint32(r.IntN(3))))
			work += most + 1 + prompt/c.MaxBatchTokens
		}
		n := d.done(list, 4*work)
		if p := int(d.count.PreemptedTotal); p > 10*len(list) {
			t.Errorf("seed %d: %d preemptions of %d sequences in %d steps for %d", seed, p, len(list), n, work)
		}
	}
}
