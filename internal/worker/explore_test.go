package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

const (
	exploreEnv     = "DYNCTL_EXPLORE"      // how long to try fresh seeds, as 10m
	exploreSeedEnv = "DYNCTL_EXPLORE_SEED" // the only seed to try
)

// exploreSeeds are tried by every run of the tests.
var exploreSeeds = []uint64{1, 2, 3, 4, 5, 6, 7, 8}

// Clusters of workers under everything that may happen to them at once: whatever the
// order, each request that nobody took back gets the tokens of an undisturbed engine, no
// block is used while a peer may write into it, and everything comes back in the end.
// A seed chooses the transport, the requests, the faults and their order; who is faster
// is the scheduler's.
func TestExplore(t *testing.T) {
	t.Parallel()
	seeds, until := exploreSeeds, time.Time{}
	if v := os.Getenv(exploreSeedEnv); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", exploreSeedEnv, err)
		}
		seeds = []uint64{seed}
	}
	if v := os.Getenv(exploreEnv); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("%s: %v", exploreEnv, err)
		}
		until = time.Now().Add(d)
	}
	if testing.Short() && len(seeds) > len(exploreTransports) {
		seeds = seeds[:len(exploreTransports)] // each transport once
	}
	var all tally
	for i := 0; i < len(seeds) || time.Now().Before(until) && !t.Failed(); i++ {
		seed := seeds[i%len(seeds)]
		if i >= len(seeds) && len(seeds) > 1 {
			seed = rand.Uint64()
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { explore(t, seed, &all) })
	}
	t.Logf("together: %s", &all)
	for _, what := range []string{"remote", "finished", "crashes", "moves", "flips", "encodings", "illustrated", "refused"} {
		if all.of(what) == 0 {
			t.Errorf("too little has happened to prove anything: no %s", what)
		}
	}
}

// tally counts what has happened.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[what]++
}

func (c *tally) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[what]
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for what, n := range c.counts {
		out = append(out, fmt.Sprint(n, " ", what))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// exploration is one cluster with its faults.
type exploration struct {
	*world
	*hops
	*tally
	*dice   // of what goes wrong between workers
	calm    atomic.Bool
	heard   atomic.Int64 // messages that clients got
	bases   [][]uint32   // beginnings that prompts share
	albums  []*album     // frontends that have images
	written writes
	late    sync.WaitGroup // transfers, messages and accesses that take their time
	lived   int            // workers started so far
	live    []*running     // those that are not known to have ended
}

// explore runs the requests of a seed to their ends and looks at what is left.
func explore(t *testing.T, seed uint64, all *tally) {
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	w.queue = events.NewMemoryQueue(events.QueueConfig{AckWait: 30 * time.Millisecond, MaxDeliver: 5})
	w.opts.StepTime = stepTime(r)
	w.putSettings(func(k *Settings) { k.RemoteTimeout = remoteLimit })
	x := &exploration{world: w, tally: all, dice: newDice(seed, 1), hops: w.hops()}
	newTransport := exploreTransports[seed%uint64(len(exploreTransports))](w)
	w.fenced = true
	w.tune = func(k *Worker) { x.disorder(k, newTransport) }
	for i := range 2 {
		x.albums = append(x.albums, w.albumOf(fmt.Sprint("album-", i)))
	}
	x.late.Add(1) // so that it is never empty before the last worker has ended
	t.Cleanup(func() { x.late.Done(); x.late.Wait() })
	for range 3 {
		x.bases = append(x.bases, prompt(r, 20+r.IntN(80)))
	}
	for range 1 + r.IntN(2) {
		x.join(cluster.RoleEncode)
	}
	for range 1 + r.IntN(2) {
		x.join(cluster.RolePrefill)
	}
	for range 2 + r.IntN(2) {
		x.join(cluster.RoleDecode)
	}
	const requests, atOnce = 32, 10
	slots, ended := make(chan struct{}, atOnce), make(chan struct{})
	go func() {
		defer close(ended)
		var wg sync.WaitGroup
		for i := range requests {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				x.client(t.Context(), i, rand.New(rand.NewPCG(seed, uint64(1000+i))))
			})
		}
		wg.Wait()
	}()
	t.Cleanup(func() { <-ended })
	for x.goesOn(ended, r) {
		x.disturb(t.Context(), r)
	}
	x.calm.Store(true)
	x.rest()
}

// goesOn lets up to 20 ms pass and the clients hear something meanwhile, and says whether
// there are clients left. Whatever the machine, so much gets done between two faults; they
// are further apart only where nothing can get done.
func (x *exploration) goesOn(ended <-chan struct{}, r *rand.Rand) bool {
	const nothing = 200 * time.Millisecond
	began, pause, enough := time.Now(), time.Duration(r.IntN(20))*time.Millisecond, x.heard.Load()+r.Int64N(60)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if past := time.Since(began); past >= pause && x.heard.Load() >= enough || past > nothing {
			return true
		}
		select {
		case <-ended:
			return false
		case <-tick.C:
		}
	}
}

// stepTime is how fast the engines of a cluster are.
func stepTime(r *rand.Rand) func(int, int) time.Duration {
	step, token := time.Duration(100+r.IntN(900))*time.Microsecond, time.Duration(r.IntN(40))*time.Microsecond
	return func(prompt, _ int) time.Duration { return step + time.Duration(prompt)*token }
}

// join starts one more worker.
func (x *exploration) join(role cluster.Role) {
	x.lived++
	x.opts.KVHeads, x.opts.TensorParallel = 4, 1<<(x.lived%3)
	r := x.start(fmt.Sprint("worker-", x.lived), role, func(c *Config) {
		c.Assignment.Engine.MaxBatchTokens = 64
		c.Assignment.Engine.MaxSeqs = 6
	})
	x.live = append(x.live, r)
}

// disorder gives a worker little memory and clientPatience, and puts everything it has to do
// with others into the hands of chance.
func (x *exploration) disorder(w *Worker, newTransport func() nixl.Transport) {
	w.waits.proof, w.waits.grace, w.waits.poll = 20*time.Millisecond, 5*time.Millisecond, 5*time.Millisecond
	w.waits.handovers.Parked, w.waits.handovers.Again = 60*time.Millisecond, 5*time.Millisecond
	load := w.cfg.Load
	w.cfg.Load = func(ctx context.Context, progress func(float64)) (*Loaded, error) {
		l, err := load(ctx, progress)
		if err == nil {
			l.Blocks, l.Backend = 128<<x.throw(2), &watched{l.Backend.(*mock.Backend), w, x}
		}
		return l, err
	}
	x.sight(w)
	w.cfg.Queue = &unrulyQueue{w.cfg.Queue, x}
	w.cfg.NIXL = func() nixl.Config {
		return nixl.Config{Key: nixltest.Key, Transports: []nixl.Transport{&unruly{newTransport(), x}}}
	}
}

// disturb does one thing to the cluster.
func (x *exploration) disturb(ctx context.Context, r *rand.Rand) {
	x.reap()
	v := x.live[r.IntN(len(x.live))]
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	switch r.IntN(20) {
	case 0:
		// Also one that drains, or the last one.
		deadline, force := time.Now().Add(time.Minute), r.IntN(4) == 0
		if force { // at once
			deadline = time.Time{}
		}
		if v.Drain(ctx, deadline, force) == nil {
			x.add("drains")
		}
	case 1, 2, 3, 4, 5:
		x.empty(ctx, r)
	case 6:
		x.add("crashes")
		x.die(v, r)
	case 7:
		if x.c.Store.RevokeLease(ctx, v.term.Load().drt.ID()) == nil {
			x.add("lost leases")
		}
	case 8, 9, 10:
		x.putSettings(func(k *Settings) {
			k.RemoteTimeout = []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, remoteLimit}[r.IntN(4)]
			k.Prefill.MaxLocalTokens = []int{0, 0, 60}[r.IntN(3)]
		})
	case 11:
		_, _ = v.engine().ClearCache(ctx) // of one that ends, perhaps
	case 12:
		x.c.Store.SetOutage(true)
		x.pause(ctx, r, 10)
		x.c.Store.SetOutage(false)
	case 13, 14:
		x.flip(ctx, r)
	default:
		if err := v.engine().Check(ctx, false); err != nil && ctx.Err() == nil && !errors.Is(err, engine.ErrClosed) {
			x.blame("%s: %v", v.Name(), err)
		}
	}
}

// empty has a decode worker that is busy hand its sequences over, and takes that back
// after a moment, or never.
func (x *exploration) empty(ctx context.Context, r *rand.Rand) {
	busy := slices.DeleteFunc(slices.Clone(x.live), func(v *running) bool {
		return v.Role() != cluster.RoleDecode || v.Status().State != cluster.StateReady || len(v.ended) > 0
	})
	if len(busy) < 2 {
		return // nowhere to go
	}
	busy = slices.DeleteFunc(busy, func(v *running) bool { return v.engine().Stats().Running == 0 })
	if len(busy) == 0 {
		return
	}
	v := busy[r.IntN(len(busy))]
	if v.Drain(ctx, time.Now().Add(time.Minute), false) != nil {
		return
	}
	x.add("drains")
	if r.IntN(3) == 0 {
		x.pause(ctx, r, 20)
		if v.Resume(ctx, v.Assignment()) == nil {
			x.add("resumes")
		}
	}
}

// flip has a worker take the other role, if another one serves in its own, and now and
// then takes that back, in time or not.
func (x *exploration) flip(ctx context.Context, r *rand.Rand) {
	serving := map[cluster.Role][]*running{}
	for _, v := range x.live {
		if v.Status().State == cluster.StateReady && len(v.ended) == 0 {
			serving[v.Role()] = append(serving[v.Role()], v)
		}
	}
	from, to := cluster.RoleDecode, cluster.RolePrefill
	if r.IntN(2) == 0 {
		from, to = to, from
	}
	if len(serving[from]) < 2 {
		return
	}
	v := serving[from][r.IntN(len(serving[from]))]
	if v.Turn(ctx, v.as(to)) != nil {
		return
	}
	x.add("flips")
	if r.IntN(3) == 0 {
		back := v.as(from)
		x.pause(ctx, r, 30)
		if v.Resume(ctx, back) == nil {
			x.add("flips taken back")
		}
	}
}

// die ends a worker without a goodbye. For a moment it may look alive to all that do not
// talk to it.
func (x *exploration) die(v *running, r *rand.Rand) {
	if r.IntN(2) == 0 {
		v.queue.Kill()
	}
	closings := []func(){func() { _ = v.server.Close() }, func() { _ = v.nixl().Close() }, func() { v.cancel(errKilled) }}
	r.Shuffle(len(closings), func(i, j int) { closings[i], closings[j] = closings[j], closings[i] })
	for _, f := range closings {
		f()
	}
}

// reap replaces workers that have ended.
func (x *exploration) reap() {
	for i, v := range x.live {
		select {
		case err := <-v.ended:
			v.once.Do(func() { v.err = err })
			x.live = slices.Delete(x.live, i, i+1)
			x.join(v.Role())
			return // one at a time
		default:
		}
	}
}

// rest waits until workers that end have ended, and proves that the others hold nothing.
func (x *exploration) rest() {
	prefills := 0
	for _, v := range x.live {
		x.settles(v.Name(), func() string {
			if len(v.ended) > 0 {
				return ""
			}
			if st := v.Status(); st.State != cluster.StateReady {
				return fmt.Sprintf("%s %+v", st.State, st.Drain)
			}
			return v.open()
		})
		if v.Role() == cluster.RolePrefill && len(v.ended) == 0 {
			prefills++
		}
	}
	if prefills > 0 {
		x.settles("the queue", func() string {
			if depth, err := x.queue.Depth(x.t.Context()); err != nil || depth.Pending+depth.InWork > 0 {
				return fmt.Sprintf("%+v %v", depth, err)
			}
			return ""
		})
	}
}

// settles waits until nothing is open any more.
func (x *exploration) settles(what string, open func() string) {
	var left string
	if !within(time.Minute, func() bool { left = open(); return left == "" }) {
		x.blame("%s does not come to rest: %s", what, left)
		x.stuck()
	}
}

// open says what a worker still holds, empty if nothing.
func (r *running) open() string {
	if err := r.engine().Check(context.Background(), true); err != nil {
		return err.Error()
	}
	if err := errors.Join(r.term.Load().duty.Idle(), r.builtin().media.Idle()); err != nil {
		return err.Error()
	}
	in, out := r.nixl().InFlight()
	// Not all tickets: a path whose proof was interrupted keeps its scratch memory open for a while.
	pool := r.everyBlock()
	exposed := r.nixl().Exposed(nixl.Read, pool) || r.nixl().Exposed(nixl.Write, pool)
	if in+out > 0 || exposed {
		return fmt.Sprintf("%d accesses, %d transfers, exposed %t", in, out, exposed)
	}
	return ""
}

// everyBlock is all memory of a worker's pool.
func (r *running) everyBlock() []nixl.Desc {
	all := make([]int32, r.engine().Stats().KVTotal)
	for i := range all {
		all[i] = int32(i)
	}
	return r.plane().Descs(all)
}

// blame says what must not be.
func (x *exploration) blame(format string, args ...any) {
	x.t.Errorf(format, args...)
}

// stuck says who waits for what.
func (x *exploration) stuck() {
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	x.t.Log(b.String())
}
