package live

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
)

// measured is a profile whose decode steps take so long.
func measured(model string, step float64) profile.Taught {
	return profile.Taught{Model: model, Time: time.Now(), Server: "http://gpu-1:8000", Profile: profile.Profile{
		Version: profile.Version, Devices: 1, Limits: profile.Limits{KVBlocks: 500, BlockSize: 16, MaxSeqs: 32, MaxBatchTokens: 256, MaxContext: 4096},
		Step: profile.Costs{Step: step, Decode: 1e-4, Token: 2e-5},
	}}
}

// A measured profile counts until the workers show how fast they are, and not for the workers of another model.
func TestMeasuredProfiles(t *testing.T) {
	several(t, "", func(w *world) {
		taught := measured("s", 0.004)
		b, err := taught.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Put(w.ctx, cluster.MeasuredKey(ns, "s"), b); err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Put(w.ctx, cluster.MeasuredKey(ns, "m"), []byte(`{"model":"m","profile":{"version":1}}`)); err != nil { // no profile
			t.Fatal(err)
		}
		defer w.plans("node-1", nil)()
		w.live(12)
		if r := w.newest("small"); r.Decision.Refusal == planner.RefusedInsufficientData || !r.Measured.Equal(taught.Time) {
			t.Errorf("measured %v, %+v", r.Measured, r.Decision)
		}
		if r := w.newest(""); r.Decision.Refusal != planner.RefusedInsufficientData || !r.Measured.IsZero() {
			t.Errorf("the main pool: measured %v, %+v", r.Measured, r.Decision)
		}
		w.live(60)
		if r := w.newest("small"); !r.Measured.IsZero() || r.Decision.Refusal == planner.RefusedInsufficientData {
			t.Errorf("after a minute of work: measured %v, %+v", r.Measured, r.Decision)
		}
	})
}

// What workers show says more than what was measured; workers that show nothing have the measured speed as long as
// there is one.
func TestMeasuredSpeed(t *testing.T) {
	taught := measured("m", 0.25)
	s := NewSpeed()
	s.choose()
	if !strings.Contains(s.Missing(), "not known") || s.taught() {
		t.Errorf("%q", s.Missing())
	}
	s.measure(&taught)
	s.choose()
	e := evaluator{speed: s, target: planner.Defaults().Target}
	if q := e.queueing(); s.Missing() != "" || !s.taught() || s.KVCapacity() != 8000 || math.Abs(s.ITL(1, 1)-0.2501) > 1e-9 || q.Chunk != 256 || q.MaxSeqs != 32 {
		t.Errorf("%q, %v tokens, ITL %v, chunk %d", s.Missing(), s.KVCapacity(), s.ITL(1, 1), q.Chunk)
	}
	out, err := e.Evaluate(planner.Plan{Decode: 1}, planner.Forecast{Rate: 0.01, Horizon: time.Minute, Lengths: []planner.Length{{ISL: 100, OSL: 10}}})
	if err != nil || out.ITL < 200*time.Millisecond {
		t.Errorf("%+v, %v", out, err)
	}
	s.measure(nil)
	s.choose()
	if s.Missing() == "" || s.taught() || s.KVCapacity() != 0 {
		t.Errorf("forgotten: %q, %v tokens", s.Missing(), s.KVCapacity())
	}
	s.measure(&taught)
	s.limits(cluster.WorkerStats{KVTotal: 100, BlockSize: 16, MaxSeqs: 8, MaxBatchTokens: 512})
	for i := range neededWindows {
		work := profile.Work{Decodes: 100, DecodeContext: 10_000 + 1000*i, Tokens: 300 - 50*i, ChunkContext: 9000 - 1500*i}
		s.learn([]profile.Sample{{Work: work, Steps: 50, Seconds: 1e-5 * float64(work.DecodeContext)}})
	}
	s.choose()
	if s.taught() || s.KVCapacity() != 1600 || s.ITL(1, 1) > 0.1 || e.queueing().Chunk != 512 {
		t.Errorf("learned: %v tokens, ITL %v", s.KVCapacity(), s.ITL(1, 1))
	}
}

// A sleeping worker is no capacity, and nobody waits for it to start.
func TestSleepingWorkersAreNoCapacity(t *testing.T) {
	for _, desire := range []cluster.Desire{cluster.DesireRun, cluster.DesireDrain} {
		g := NewGatherer(at(0), NewSpeed())
		st := cluster.WorkerStatus{Name: "worker-1", Role: cluster.RoleDecode, State: cluster.StateSleeping, InstanceID: 1, UpdatedAt: at(0)}
		v := View{
			Assignments: map[string]cluster.Assignment{"worker-1": {Name: "worker-1", Role: cluster.RoleDecode, Node: "n1", Desire: desire}},
			Status:      map[string]cluster.WorkerStatus{"worker-1": st},
		}
		o := g.Observe(at(5), v)
		if len(o.Pending) != 0 || len(o.Decode.Workers) != 1 || o.Decode.Workers[0].State != planner.WorkerDraining {
			t.Errorf("%s: %+v, pending %+v", desire, o.Decode.Workers, o.Pending)
		}
	}
}
