package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/protocol"
)

// job is a request of a random stream. No two things happen at the same time.
type job struct {
	at, cancel time.Duration // cancel is 0 for never
	request    engine.Request
	prefill    bool          // only the prompt, whose blocks are held as long as fill says
	fill       time.Duration // that a remote prefill takes, if positive
	start      bool          // it succeeds
}

// longestStep is more than any step of these jobs takes.
const longestStep = 25 * time.Millisecond

func randomJobs(r *rand.Rand) []job {
	jobs := make([]job, 60)
	at := time.Duration(0)
	shared := prompt(r, 400)
	for i := range jobs {
		at += time.Duration(r.ExpFloat64() * float64(20*time.Millisecond))
		p := append(slices.Clone(shared[:r.IntN(len(shared))]), prompt(r, 1+r.IntN(100))...)
		j := job{at: at, request: request(fmt.Sprint("job ", i), p, 1+r.IntN(60)), start: r.IntN(3) > 0}
		j.request.Tenant = fmt.Sprint("tenant ", r.IntN(4))
		j.request.Sampling = protocol.SamplingOptions{Temperature: 1, Seed: r.Uint64()}
		switch r.IntN(6) {
		case 0:
			// Not in the step during which it comes: beside Run, a request can be cancelled only
			// once the engine has heard of it.
			j.cancel = at + longestStep + time.Duration(r.ExpFloat64()*float64(200*time.Millisecond))
		case 1:
			j.prefill, j.fill = true, time.Duration(r.ExpFloat64()*float64(50*time.Millisecond))
		case 2:
			j.fill = time.Duration(r.ExpFloat64() * float64(50*time.Millisecond))
			j.request.Decide = func(int, int) engine.Decision { return engine.Decision{Remote: true, Why: "far"} }
		}
		jobs[i] = j
	}
	return jobs
}

const kvBlocks = 48 // fewer than the jobs would like to have

// seen is what the users of an engine see, with the times.
type seen struct {
	Outputs map[string][]string
	Events  []string
	Stats   cluster.WorkerStats
}

// output notes what comes at a time. Outputs of one time may be merged.
func (s *seen) output(j *job, now time.Duration, v any) {
	all, at := s.Outputs[j.request.ID], fmt.Sprint(now, ":")
	if n := len(all); n == 0 || !strings.HasPrefix(all[n-1], at) {
		all = append(all, at)
	}
	all[len(all)-1] += fmt.Sprint(" ", v)
	s.Outputs[j.request.ID] = all
}

// watched is an engine's backend and sink. Steps take the time that pass is told.
type watched struct {
	engine.Backend
	now  func() time.Duration
	pass func(time.Duration)
	seen *seen
}

func (w *watched) Step(ctx context.Context, batch []engine.BatchSeq) error {
	d := 2 * time.Millisecond
	for _, s := range batch {
		d += time.Duration(len(s.Tokens)) * 30 * time.Microsecond
	}
	w.pass(d)
	return w.Backend.Step(ctx, batch)
}

func (w *watched) event(args ...any) {
	w.seen.Events = append(w.seen.Events, fmt.Sprint(append(args, " at ", w.now())...))
}
func (w *watched) Stored(_ *uint64, n int, b []cluster.KVStoredBlock) { w.event("stored ", n, b) }
func (w *watched) Removed(hashes []uint64, why string)                { w.event(why, hashes) }
func (w *watched) Cleared(n int)                                      { w.event("cleared ", n) }

func (w *watched) config() engine.Config {
	return engine.Config{NumBlocks: kvBlocks, MaxSeqs: 12, MaxBatchTokens: 128, ITLTarget: 6 * time.Millisecond, Sink: w}
}

func watch(t *testing.T) *watched {
	b := mock.New(mock.Options{VocabSize: vocab, BlockSize: 16})
	mem, err := b.AllocKV(kvBlocks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mem.Close() })
	return &watched{Backend: b, seen: &seen{Outputs: map[string][]string{}}}
}

func describe(o engine.Output) string {
	text := strings.Trim(fmt.Sprint(o.Tokens), "[]")
	if o.First != nil {
		text += fmt.Sprintf(" %+v", *o.First)
	}
	if o.Finish != protocol.FinishNone {
		text += fmt.Sprint(" ", o.Finish, o.Err, o.Decoded)
	}
	return strings.TrimSpace(text)
}

// A Stepper does the same at the same times as Run: tokens, events, counts.
func TestStepperDoesWhatRunDoes(t *testing.T) {
	var all cluster.WorkerStats
	for range 10 {
		seed := rand.Uint64()
		a, b := runJobs(t, randomJobs(rand.New(rand.NewPCG(seed, 1)))), stepJobs(t, randomJobs(rand.New(rand.NewPCG(seed, 1))))
		for id, outputs := range a.Outputs {
			if !slices.Equal(outputs, b.Outputs[id]) {
				t.Errorf("seed %d, %s: run\n%q\nstepped\n%q", seed, id, outputs, b.Outputs[id])
			}
		}
		for i := range max(len(a.Events), len(b.Events)) {
			if !slices.Equal(a.Events[:min(i+1, len(a.Events))], b.Events[:min(i+1, len(b.Events))]) {
				t.Errorf("seed %d, event %d: run %s, stepped %s", seed, i, a.Events[i:min(i+1, len(a.Events))], b.Events[i:min(i+1, len(b.Events))])
				break
			}
		}
		if a.Stats != b.Stats {
			t.Errorf("seed %d: run %+v\nstepped %+v", seed, a.Stats, b.Stats)
		}
		if t.Failed() {
			return
		}
		all.PreemptedTotal += a.Stats.PreemptedTotal
		all.CancelledTotal += a.Stats.CancelledTotal
		all.FallbackTotal += a.Stats.FallbackTotal
		all.RemotePrefillTotal += a.Stats.RemotePrefillTotal
	}
	if all.PreemptedTotal == 0 || all.RemotePrefillTotal == 0 || all.FallbackTotal == 0 || all.CancelledTotal == 0 {
		t.Errorf("the jobs test too little: %+v", all)
	}
}

func runJobs(t *testing.T, jobs []job) *seen {
	w := watch(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w.now, w.pass = func() time.Duration { return time.Since(start) }, time.Sleep
		e, err := engine.New(w.config(), w)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		outputs := make([]seen, len(jobs))
		for i := range jobs {
			outputs[i].Outputs = map[string][]string{}
			go jobs[i].run(ctx, e, &outputs[i], w.now)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		w.seen.Stats = e.Stats()
		if err := e.Check(ctx, true); err != nil {
			t.Error(err)
		}
		cancel()
		<-ended
		for i := range jobs {
			w.seen.Outputs[jobs[i].request.ID] = outputs[i].Outputs[jobs[i].request.ID]
		}
	})
	return w.seen
}

// run is a client of an engine that runs.
func (j *job) run(ctx context.Context, e *engine.Engine, s *seen, now func() time.Duration) {
	time.Sleep(j.at)
	if j.prefill {
		held, err := e.Prefill(ctx, engine.PrefillRequest{ID: j.request.ID, Tenant: j.request.Tenant, Tokens: j.request.Tokens})
		s.output(j, now(), fmt.Sprint(held.Blocks, held.Cached, held.Tokens, err))
		time.Sleep(j.fill)
		held.Release()
		return
	}
	r := j.request
	r.Remote = func(v *engine.Reservation) {
		s.output(j, now(), v.Blocks)
		time.Sleep(j.fill)
		j.end(v)
	}
	stream, err := e.Submit(ctx, r)
	if err != nil {
		s.output(j, now(), err)
		return
	}
	if j.cancel > 0 {
		stop := time.AfterFunc(j.cancel-now(), stream.Cancel)
		defer stop.Stop()
	}
	for {
		o, err := stream.Next(ctx)
		if err != nil {
			return
		}
		s.output(j, now(), describe(o))
	}
}

func (j *job) end(v *engine.Reservation) {
	if j.start {
		v.Start("far away")
	} else {
		v.Fallback("lost")
	}
}

// stepJobs plays the jobs in virtual time of its own.
func stepJobs(t *testing.T, jobs []job) *seen {
	w := watch(t)
	var now time.Duration
	w.now, w.pass = func() time.Duration { return now }, func(d time.Duration) { now += d }
	cfg := w.config()
	cfg.Now = func() time.Time { return time.Time{}.Add(time.Hour + now) }
	s, err := engine.NewStepper(cfg, w)
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		at     time.Duration
		do     func()
		arrive bool // otherwise it takes effect after the step, as a mail does
	}
	var events []event
	schedule := func(at time.Duration, do func()) { events = append(events, event{at, do, false}) }
	var readers []func()
	for i := range jobs {
		j := &jobs[i]
		events = append(events, event{j.at, func() {
			if j.prefill {
				p, err := s.Prefill(t.Context(), engine.PrefillRequest{ID: j.request.ID, Tenant: j.request.Tenant, Tokens: j.request.Tokens})
				if err != nil {
					t.Fatal(err)
				}
				readers = append(readers, func() {
					if held, done, err := p.Take(); done {
						w.seen.output(j, now, fmt.Sprint(held.Blocks, held.Cached, held.Tokens, err))
						schedule(now+j.fill, held.Release)
					}
				})
				return
			}
			r := j.request
			r.Remote = func(v *engine.Reservation) {
				w.seen.output(j, now, v.Blocks)
				schedule(now+j.fill, func() { j.end(v) })
			}
			stream, err := s.Engine.Submit(t.Context(), r)
			if err != nil {
				w.seen.output(j, now, err)
				return
			}
			if j.cancel > 0 {
				schedule(j.cancel, stream.Cancel)
			}
			var first time.Duration
			readers = append(readers, func() {
				o, ok := stream.Take()
				if !ok {
					return
				}
				w.seen.output(j, now, describe(o))
				if o.First != nil {
					first = now
				}
				if complete := o.Finish == protocol.FinishLength || o.Finish == protocol.FinishStop; complete && o.Decoded != now-first || !complete && o.Decoded != 0 {
					t.Errorf("%s ends with %q, decoded in %s, want %s", j.request.ID, o.Finish, o.Decoded, now-first)
				}
			})
		}, true})
	}
	for {
		progress, err := s.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, read := range readers {
			read()
		}
		slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		end := now
		if !progress && len(events) > 0 {
			end = events[0].at
		}
		for len(events) > 0 && events[0].at <= end {
			v := events[0]
			events = events[1:]
			now = end
			if v.arrive {
				now = v.at
			}
			v.do()
			now, progress = end, true
			for _, read := range readers {
				read()
			}
		}
		if !progress {
			break
		}
	}
	w.seen.Stats = s.Engine.Stats()
	if err := s.Engine.Check(t.Context(), true); err != nil {
		t.Error(err)
	}
	return w.seen
}
