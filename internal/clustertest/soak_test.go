package clustertest_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
)

// A cluster is under load and random faults for a while: clients get what they get when
// nothing happens, and in the end the processes that lived through it use what they used
// in the beginning.
func TestSoak(t *testing.T) {
	duration := soakTime(t)
	c := clustertest.Start(t, clustertest.Options{
		Model: mediumModel(t), Prefill: 1, Decode: 2,
		// So few blocks that prompts are evicted and prefilled anew.
		Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 128, MaxBatchTokens: 64},
		Nodes: []clustertest.Node{
			{Roles: []string{"decode"}, Process: true}, {Roles: []string{"prefill"}, Process: true}, {Roles: []string{"decode"}, Process: true},
		},
	})
	c.WaitRemotePrefill()
	runSoak(&soak{t: t, c: c, lasting: [2]int{0, 2}}, duration, []soakFault{
		{"drain and resume", (*soak).drain},
		{"kill and restart", (*soak).kill},
		{"change of strategy", (*soak).change},
	})
}

// The same with requests that have images, among which encode workers are drained and killed,
// too.
func TestSoakImages(t *testing.T) {
	duration := soakTime(t)
	c := clustertest.Start(t, clustertest.Options{
		Model: seer(t), Encode: 2, Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 128, MaxBatchTokens: 64},
		Nodes: []clustertest.Node{
			{Roles: []string{"decode"}, Process: true}, {Roles: []string{"prefill"}, Process: true}, {Roles: []string{"decode"}, Process: true},
			{Roles: []string{"encode"}, Process: true}, {Roles: []string{"encode"}, Process: true},
		},
	})
	c.WaitRemotePrefill()
	// Two processes more than above: each may have a connection for requests and one for
	// embeddings, of six goroutines.
	s := &soak{t: t, c: c, lasting: [2]int{0, 2}, workers: 2 * 2 * 6}
	for i := range 30 {
		urls := []string{drawing(i), drawing(i + 1), drawing(i)}[:1+i%3]
		s.pictures = append(s.pictures, urls)
		s.saw = append(s.saw, look(t, c, urls...))
	}
	encoder := func(s *soak) *clustertest.RunningNode { return c.Nodes[3+s.r.IntN(2)] }
	runSoak(s, duration, []soakFault{
		{"drain and resume", (*soak).drain},
		{"kill and restart", (*soak).kill},
		{"change of strategy", (*soak).change},
		{"drain and resume an encode worker", func(s *soak) { s.drainOne(workerIn(t, c, encoder(s), cluster.RoleEncode)) }},
		{"kill and restart an encode worker", func(s *soak) {
			victim := encoder(s)
			victim.Kill()
			victim.Restart()
			waitBack(t, c, victim, cluster.RoleEncode, 1, 2)
		}},
	})
}

// soakTime is how long a soak is to run.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	if os.Getenv(soakVariable) == "" {
		t.Skip("takes minutes: make soak")
	}
	duration, err := time.ParseDuration(os.Getenv(soakVariable))
	if err != nil {
		t.Fatalf("%s: %v", soakVariable, err)
	}
	return duration
}

// runSoak has faults happen for a while.
func runSoak(s *soak, duration time.Duration, faults []soakFault) {
	t, c := s.t, s.c
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s.r, s.faults = rand.New(rand.NewPCG(seed, 1)), map[string]int{}
	for n := range int64(60) {
		s.prompts = append(s.prompts, freshPrompt("soak", n))
		a, err := c.Complete(t.Context(), streamBody(s.prompts[n], soakTokens))
		if err != nil {
			t.Fatal(err)
		}
		s.want = append(s.want, a)
	}
	s.load(func() { // what is made once is made now
		for _, fault := range faults {
			s.strike(fault.name, fault.strike)
		}
	})
	start := s.footprints()
	clear(s.faults)
	s.load(func() {
		for end := time.Now().Add(duration); time.Now().Before(end) && !t.Failed(); {
			fault := faults[s.r.IntN(len(faults))]
			s.strike(fault.name, fault.strike)
		}
	})
	t.Logf("%d streams ended, %d were left by their clients; faults: %v", s.ended.Load(), s.left.Load(), s.faults)
	s.waitFootprints(start)
}

// soakTokens is the length of answers: some run when a drain begins.
const soakTokens = 64

// soak is a cluster under load and faults.
type soak struct {
	t           *testing.T
	c           *clustertest.Cluster
	r           *rand.Rand
	prompts     []string
	want        []clustertest.Answer
	ended, left atomic.Int64
	faults      map[string]int
	lasting     [2]int // nodes that no fault kills
	workers     int    // in a process, where they are many

	pictures [][]string // of questions, and the answers
	saw      []seen
}

type soakFault struct {
	name   string
	strike func(*soak)
}

// load runs f while clients ask and, now and then, leave.
func (s *soak) load(f func()) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	end := func() {
		stop()
		wg.Wait()
	}
	defer end()
	for k := range 8 {
		r := rand.New(rand.NewPCG(s.r.Uint64(), uint64(k)))
		wg.Go(func() {
			for ctx.Err() == nil && !s.t.Failed() {
				s.one(r)
			}
		})
	}
	f()
	end()
	s.c.WaitRest()
}

// one asks something; one client in five leaves before the end.
func (s *soak) one(r *rand.Rand) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	if r.IntN(5) == 0 {
		defer time.AfterFunc(time.Duration(r.IntN(200))*time.Millisecond, cancel).Stop()
	}
	if len(s.pictures) > 0 && r.IntN(2) == 0 {
		s.look(ctx, r)
		return
	}
	i := r.IntN(len(s.prompts))
	a, err := s.c.Complete(ctx, streamBody(s.prompts[i], soakTokens))
	switch w := s.want[i]; {
	case err != nil && ctx.Err() != nil: // it broke off where the client left
		s.left.Add(1)
	case err != nil || a.Text != w.Text || a.Finish != w.Finish || a.Usage != w.Usage:
		s.t.Errorf("stream: %v, got %q %s %+v, want %q %s %+v", err, a.Text, a.Finish, a.Usage, w.Text, w.Finish, w.Usage)
	default:
		s.ended.Add(1)
	}
}

// look asks about pictures.
func (s *soak) look(ctx context.Context, r *rand.Rand) {
	i := r.IntN(len(s.pictures))
	got, err := lookAt(ctx, s.c, "auto", s.pictures[i]...)
	switch w := s.saw[i]; {
	case err != nil && ctx.Err() != nil:
		s.left.Add(1)
	case err != nil || got.status != w.status || got.text != w.text || got.images != w.images:
		s.t.Errorf("pictures %d: %v, got %+v, want %+v", i, err, got, w)
	default:
		s.ended.Add(1)
	}
}

// strike has a fault happen after some more streams.
func (s *soak) strike(name string, fault func(*soak)) {
	s.t.Helper()
	until := s.ended.Load() + 4 + s.r.Int64N(20)
	s.c.WaitView("streams end before "+name, func(client.View) bool { return s.ended.Load() >= until || s.t.Failed() })
	fault(s)
	s.faults[name]++
}

// drain empties one of the decode workers and takes it back, in the middle at times.
func (s *soak) drain() { s.drainOne(workerOf(s.t, s.c, s.c.Nodes[2*s.r.IntN(2)])) }

func (s *soak) drainOne(name string) {
	s.t.Helper()
	s.c.Insist(func(ctx context.Context) error {
		return s.c.Client.Drain(ctx, name, time.Now().Add(time.Minute), false)
	})
	early := s.r.IntN(3) == 0
	s.c.WaitView(name+" drains", func(v client.View) bool {
		return slices.ContainsFunc(v.Workers(), func(w cluster.Worker) bool {
			return w.Name == name && (w.State == cluster.StateDrained || early && !w.State.Serving())
		})
	})
	s.c.Insist(func(ctx context.Context) error { return s.c.Client.Resume(ctx, name) })
	s.c.WaitView(name+" serves again", func(v client.View) bool {
		return !slices.ContainsFunc(v.Workers(), func(w cluster.Worker) bool { return w.Name == name && !w.State.Serving() })
	})
}

// kill kills the process of the prefill worker and starts it again.
func (s *soak) kill() {
	victim := s.c.Nodes[1]
	victim.Kill()
	victim.Restart()
	waitBack(s.t, s.c, victim, cluster.RolePrefill, 1, 2)
}

func (s *soak) change() { s.c.Set(strategies[s.r.IntN(len(strategies))].settings) }

// footprints are those of the processes that no fault kills.
func (s *soak) footprints() (f [2]clustertest.Footprint) {
	s.t.Helper()
	http.DefaultClient.CloseIdleConnections() // the clients' part
	for i := range f {
		var err error
		if f[i], err = s.c.Nodes[s.lasting[i]].Footprint(); err != nil {
			s.t.Fatal(err)
		}
	}
	return f
}

// footprintPatience is how long memory may take to come back: what a process that was
// killed had open ends when its peers notice that, after keep-alives at the latest.
const footprintPatience = time.Minute

// waitFootprints waits until nothing is left of what happened since the start.
func (s *soak) waitFootprints(start [2]clustertest.Footprint) {
	s.t.Helper()
	for deadline := time.Now().Add(footprintPatience); ; time.Sleep(time.Second) {
		now := s.footprints()
		more := false
		for i := range now {
			more = more || now[i].Goroutines > start[i].Goroutines+footprintSlack+s.workers || now[i].Files > start[i].Files+footprintSlack+s.workers ||
				now[i].Heap > start[i].Heap+heapSlack+uint64(s.workers)*workerHeapSlack
		}
		if !more || time.Now().After(deadline) {
			for i := range now {
				if more {
					s.t.Logf("goroutines at the start:\n%s\nin the end:\n%s", start[i].Stacks, now[i].Stacks)
				}
				start[i].Stacks, now[i].Stacks = "", ""
			}
			s.t.Logf("at the start %+v", start)
			s.t.Logf("in the end   %+v", now)
			if more {
				s.t.Error("processes use more than at the start")
			}
			return
		}
	}
}

// What may differ between two moments of rest: a connection that is being made or
// closed, and what is kept in bounded tables and pools.
const (
	footprintSlack = 12 // two connections of the request plane
	heapSlack      = 8 << 20
	// Of each worker of a process, in a fleet: which peers it is connected to, and what
	// frontends know of its cache.
	workerHeapSlack = 128 << 10
)
