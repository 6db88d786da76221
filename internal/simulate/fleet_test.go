package simulate

import (
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/router"
)

// script is a controller that acts at given ticks and keeps what it saw.
type script struct {
	acts map[int][]Action
	seen []Observation
}

func (s *script) Tick(_ time.Duration, o *Observation) []Action {
	c := *o
	c.Arrivals, c.Firsts, c.Ends, c.Changes = slices.Clone(o.Arrivals), slices.Clone(o.Firsts), slices.Clone(o.Ends), slices.Clone(o.Changes)
	s.seen = append(s.seen, c)
	return s.acts[len(s.seen)]
}

// A second worker starts when it is asked for, takes half of the load, and leaves when the
// number goes back, once its answers have ended.
func TestScaleOutAndIn(t *testing.T) {
	p := plain()
	p.Overheads.Startup = 7
	c := &script{acts: map[int][]Action{1: {{Role: cluster.RoleDecode, Workers: 2}}, 4: {{Role: cluster.RoleDecode, Workers: 1}}}}
	load := &Open{From: workload.Synthetic{Input: workload.Fixed(10), Output: workload.Fixed(100), Turns: 1}, Schedule: every(time.Second), Count: 60}
	r := play(t, Config{Profile: p, Decode: 1, Policy: router.LeastLoaded, Load: load, Controller: c, Tick: 10 * time.Second, Interval: 10 * time.Second, Records: true})
	if len(r.Actions) != 2 || r.Actions[0].AtS != 10 || r.Actions[1].AtS != 40 {
		t.Fatalf("%+v", r.Actions)
	}
	for _, rec := range r.Records {
		if rec.AtS < 17 && rec.Decode != "worker-1" || rec.AtS > 40 && rec.Decode != c.seen[4].Workers[0].Name {
			t.Errorf("%s got a request at %v s", rec.Decode, rec.AtS)
		}
	}
	states := func(o Observation) (out []State) {
		for _, w := range o.Workers {
			out = append(out, w.State)
		}
		return out
	}
	if got := states(c.seen[1]); !slices.Equal(got, []State{Ready, Ready}) || c.seen[1].Workers[1].Since != 17*time.Second {
		t.Errorf("after 20 s: %+v", c.seen[1].Workers)
	}
	if got := states(c.seen[4]); !slices.Equal(got, []State{Ready}) || c.seen[4].Decode != 1 {
		t.Errorf("after 50 s: %v", got)
	}
	if got, want := c.seen[1].Changes, []Change{{Started, cluster.RoleDecode, 7 * time.Second}}; !slices.Equal(got, want) {
		t.Errorf("changes %+v, want %+v", got, want)
	}
	if got := c.seen[4].Changes; len(got) != 1 || got[0].Kind != Drained || got[0].Took < 0 || got[0].Took > 2*time.Second {
		t.Errorf("changes %+v, want a drain", got)
	}
	// The second worker exists from 10 s until its last answer after 40 s, which takes at most
	// 1.2 s for each request of it.
	extra := r.DeviceHours*3600 - r.SpanS
	if extra < 30 || extra > 33 {
		t.Errorf("the second worker cost %v s", extra)
	}
	n := 0
	for i, o := range c.seen {
		n += len(o.Arrivals)
		if len(o.Workers) == 1 && (o.Workers[0].Busy < 0 || o.Workers[0].Busy > 1+1e-9) || o.From != time.Duration(i)*10*time.Second {
			t.Errorf("window %d: %+v", i, o)
		}
	}
	points := 0
	for _, p := range r.Series {
		points += p.Arrivals
	}
	if n > 60 || points != 60 || len(c.seen[0].Ends) == 0 || c.seen[0].Ends[0].Output != 100 || c.seen[0].Ends[0].TTFT != 11*time.Millisecond || c.seen[0].Firsts[0].TTFT != 11*time.Millisecond {
		t.Errorf("%d arrivals seen, %d in the series; %+v", n, points, c.seen[0])
	}
}

// A worker is busy while it computes a step, and not for what of the step is still to come.
func TestBusyWithinAStep(t *testing.T) {
	c := &script{}
	r := play(t, Config{Profile: plain(), Decode: 1, Load: &list{prompt(time.Millisecond, 1, 100, 1)}, Controller: c, Tick: 8 * time.Millisecond, Interval: 8 * time.Millisecond})
	for i, want := range []float64{7. / 8, 1} { // it computes from 1 to 21 ms
		if got := c.seen[i].Workers[0].Busy; !close9(got, want) || !close9(r.Series[i].DecodeUse, want) {
			t.Errorf("window %d: busy %v and %v, want %v", i, got, r.Series[i].DecodeUse, want)
		}
	}
	if len(r.Series) != 3 || !close9(r.Series[2].AtS, 0.021) || !close9(r.Series[2].DecodeUse, 1) || !close9(r.DecodeBusy, 20./21) {
		t.Errorf("%+v, busy %v", r.Series, r.DecodeBusy)
	}
}

// A flip makes a decode worker of a prefill worker; what it computed moves before.
func TestFlip(t *testing.T) {
	p := plain()
	p.Overheads.Flip = 3
	c := &script{acts: map[int][]Action{2: {{Role: cluster.RoleDecode, Flip: "worker-1"}}}}
	load := poisson(2, workload.Fixed(300), workload.Fixed(50), 60, 1)
	r := play(t, Config{Profile: p, Prefill: 2, Decode: 1, Disagg: always, Load: load, Controller: c, Tick: 5 * time.Second, Records: true})
	last := c.seen[len(c.seen)-1]
	if len(last.Workers) != 3 || last.Prefill != 1 || last.Decode != 2 || last.Workers[2].Name != "worker-4" || last.Workers[2].Role != cluster.RoleDecode {
		t.Fatalf("%+v", last)
	}
	var changes []Change
	for _, o := range c.seen {
		changes = append(changes, o.Changes...)
		for _, w := range o.Workers {
			if flips := w.Ordered == 10*time.Second && w.State != Ready; w.Flips != flips {
				t.Errorf("%+v: flips, want %t", w, flips)
			}
		}
	}
	if len(changes) != 1 || changes[0].Kind != Flipped || changes[0].Role != cluster.RoleDecode || changes[0].Took < 3*time.Second || changes[0].Took > 5*time.Second {
		t.Errorf("changes %+v, want a flip", changes)
	}
	used := map[string]bool{}
	for _, rec := range r.Records {
		if rec.Prefill == "worker-1" && rec.AtS > 10 {
			t.Errorf("worker-1 prefills at %v s", rec.AtS)
		}
		used[rec.Prefill], used[rec.Decode] = true, true
	}
	for _, name := range []string{"worker-1", "worker-2", "worker-3", "worker-4"} {
		if !used[name] {
			t.Errorf("%s had nothing to do", name)
		}
	}
}

// A window has the steps that began in it: 100 tokens of a prompt in 20 ms, and then steps of 11 ms that read the KV of
// one sequence.
func TestStepsOfAWindow(t *testing.T) {
	c := &script{}
	play(t, Config{Profile: plain(), Decode: 1, Load: &list{prompt(0, 1, 100, 20)}, Controller: c, Tick: 45 * time.Millisecond})
	// The prompt ends at 20 ms; steps begin then, at 31 and at 42 ms, with 101, 102 and 103 tokens, and four in the next.
	if w := c.seen[0].Workers[0]; w.PromptTokens != 100 || w.PromptBusy != 20*time.Millisecond || w.Step != 11*time.Millisecond || w.StepKV != 102 {
		t.Errorf("%+v", w)
	}
	if w := c.seen[1].Workers[0]; w.PromptTokens != 0 || w.PromptBusy != 0 || w.Step != 11*time.Millisecond || w.StepKV != 105 {
		t.Errorf("%+v", w)
	}
}

// A worker that drains to take a role counts as one of it: no other is started. The index
// forgets a worker that is gone.
func TestComingWorkersCount(t *testing.T) {
	p := plain()
	p.Overheads.Flip, p.Overheads.Startup = 1, 1
	c := &script{acts: map[int][]Action{1: {{Role: cluster.RoleDecode, Flip: "worker-1"}, {Role: cluster.RoleDecode, Workers: 2}}}}
	s, err := newSimulation(Config{Profile: p, Prefill: 1, Decode: 1, Disagg: always, Load: &list{prompt(1500*time.Millisecond, 1, 7000, 200)}, Controller: c, Tick: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.play(t.Context()); err != nil {
		t.Fatal(err)
	}
	var took []time.Duration // from the order on: the prompt ends first
	for _, o := range c.seen {
		for _, change := range o.Changes {
			took = append(took, change.Took)
		}
	}
	if len(took) != 1 || took[0] < 1200*time.Millisecond || took[0] > 2*time.Second {
		t.Errorf("changes took %v", took)
	}
	var names []string
	for _, w := range c.seen[len(c.seen)-1].Workers {
		names = append(names, w.Name)
	}
	if !slices.Equal(names, []string{"worker-2", "worker-3"}) {
		t.Errorf("%v", names)
	}
	for id, want := range map[cluster.InstanceID]bool{1: false, 2: true} {
		if held := s.index.Held(id); held[kvindex.Device] > 0 != want {
			t.Errorf("worker-%d: %v blocks", id, held)
		}
	}
}

// Without decode workers requests wait for one, and are refused after SuccessorWait.
func TestNoDecodeWorker(t *testing.T) {
	for _, startup := range []float64{3, 30} {
		p := plain()
		p.Overheads.Startup = startup
		c := &script{acts: map[int][]Action{1: {{Role: cluster.RoleDecode, Workers: 1}}}}
		r := play(t, Config{Profile: p, Load: &list{prompt(500*time.Millisecond, 1, 100, 1)}, Controller: c, Tick: time.Second, Records: true})
		if startup == 3 {
			if !close9(r.Records[0].TTFT, 3500+20) {
				t.Errorf("%+v", r.Records)
			}
		} else if r.Refused[RefusedNoWorker] != 1 || !close9(r.SpanS, 0.5+cluster.SuccessorWait.Seconds()) {
			t.Errorf("%+v", r)
		}
		if o := c.seen[0]; o.Queue.Frontend != 1 || o.Queue.Oldest != 500*time.Millisecond {
			t.Errorf("%+v", o.Queue)
		}
	}
}

// All prefill workers leave while prompts are computed and wait: each request still ends once.
func TestPrefillWorkersLeave(t *testing.T) {
	for _, strategy := range []string{"prefill-first", "decode-first"} {
		for _, sequential := range []bool{false, true} {
			c := &script{acts: map[int][]Action{1: {{Role: cluster.RolePrefill, Workers: 0}}, 3: {{Role: cluster.RolePrefill, Workers: 2}}, 5: {{Role: cluster.RoleDecode, Workers: 1}, {Role: cluster.RolePrefill, Workers: 1}}}}
			p := plain()
			p.Overheads.Startup = 1
			r := play(t, Config{
				Profile: p, Prefill: 1, Decode: 2, Strategy: strategy, Sequential: sequential, Disagg: always, RemoteTimeout: 2 * time.Second,
				Load: poisson(12, workload.Fixed(700), workload.Fixed(20), 200, 2), Controller: c, Tick: 2 * time.Second,
			})
			if r.Succeeded != 200 || r.Remote == 0 || r.Local == 0 {
				t.Errorf("%s, sequential %t: %d succeeded, %d remote, %d local: %v", strategy, sequential, r.Succeeded, r.Remote, r.Local, r.Reasons)
			}
		}
	}
}

// A prompt that no prefill worker computes in time is computed by the decode worker.
func TestRemotePrefillTimesOut(t *testing.T) {
	for _, strategy := range []string{"prefill-first", "decode-first"} {
		for _, sequential := range []bool{false, true} {
			r := play(t, Config{
				Profile: plain(), Prefill: 1, Decode: 1, Strategy: strategy, Sequential: sequential, Disagg: always, RemoteTimeout: time.Second, Records: true,
				Load: poisson(20, workload.Fixed(700), workload.Fixed(5), 100, 2),
			})
			if r.Reasons[router.WhyPrefillTimeout] == 0 || r.Remote == 0 {
				t.Errorf("%s, sequential %t: %v", strategy, sequential, r.Reasons)
			}
		}
	}
}

func TestControllerMistakes(t *testing.T) {
	for _, a := range []Action{{Role: "encode", Workers: 1}, {Role: cluster.RoleDecode, Workers: -1}, {Role: cluster.RoleDecode, Workers: 2000}, {Role: cluster.RoleDecode, Flip: "worker-9"}} {
		c := &script{acts: map[int][]Action{1: {a}}}
		if _, err := Run(t.Context(), Config{Profile: plain(), Decode: 1, Load: &list{prompt(time.Minute, 1, 1, 1)}, Controller: c}); err == nil {
			t.Errorf("%+v: no error", a)
		}
	}
}
