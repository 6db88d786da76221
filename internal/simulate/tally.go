package simulate

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
)

// tally counts what happens.
type tally struct {
	s                         *simulation
	ttft, tpot, e2e, transfer []float64 // milliseconds
	gaps                      gaps
	good, cached, computed    int // cached and computed tokens of prompts
	bytes                     float64
	delivery                  time.Duration

	// Of the present interval of the series.
	now            Point
	ttfts, tpots   []float64
	pointed        time.Duration // when it began
	worked         map[cluster.Role]time.Duration
	existed        map[cluster.Role]time.Duration // of workers that are not starting
	retiredWork    map[cluster.Role]time.Duration // of workers that are gone
	retiredTime    map[cluster.Role]time.Duration
	retiredDevices float64 // seconds times devices of workers that are gone
}

func (t *tally) begin(s *simulation) {
	*t = tally{s: s, delivery: profile.Seconds(s.Profile.Overheads.Delivery)}
	for _, m := range []*map[cluster.Role]time.Duration{&t.worked, &t.existed, &t.retiredWork, &t.retiredTime} {
		*m = map[cluster.Role]time.Duration{}
	}
	s.result.Refused, s.result.Reasons = map[string]int{}, map[string]int{}
}

func (t *tally) arrive(j *job) {
	t.s.result.Requests++
	t.now.Arrivals++
	t.now.Input += j.input
	if t.s.Controller != nil {
		t.s.window.arrivals = append(t.s.window.arrivals, Arrival{j.came, j.input})
	}
}

func (j *job) ttft() time.Duration { return j.first + j.s.tally.delivery - j.came }

// tpot is the mean time between tokens; 0 for an answer of one.
func (j *job) tpot() time.Duration {
	if j.outputs < 2 {
		return 0
	}
	return (j.last - j.first) / time.Duration(j.outputs-1)
}

func (t *tally) first(j *job) {
	ttft := ms(j.ttft())
	t.ttft, t.ttfts = append(t.ttft, ttft), append(t.ttfts, ttft)
	f := &j.output1
	cached := j.cached()
	if f.Remote {
		t.s.result.Remote++
	} else {
		t.s.result.Local++
	}
	t.s.result.Reasons[j.reason()]++
	t.cached, t.computed = t.cached+cached, t.computed+j.input-cached
	if t.s.Controller != nil {
		t.s.window.firsts = append(t.s.window.firsts, First{t.s.now, j.ttft(), j.input, cached, f.Remote})
	}
}

// cached returns the tokens of the prompt that need not be computed.
func (j *job) cached() int {
	if f := &j.output1; f.Remote {
		return max(f.Cached, j.hop.held.Cached)
	}
	return j.output1.Cached
}

// reason is why the prompt was computed where it was.
func (j *job) reason() string {
	if f := &j.output1; !f.Remote && j.why == "" || !f.Remote && j.hop != nil {
		return f.Why
	}
	return j.why
}

func (t *tally) gap(d time.Duration) { t.gaps.add(d, 1) }

func (t *tally) moved(h *hop) {
	t.transfer = append(t.transfer, ms(t.s.now-h.flow.begun))
	t.bytes += h.flow.offered
}

func (t *tally) finish(j *job) {
	r := t.s.result
	r.Succeeded++
	r.Input, r.Output = r.Input+j.input, r.Output+j.outputs
	e2e := j.last + t.delivery - j.came
	t.e2e = append(t.e2e, ms(e2e))
	if j.outputs > 1 {
		t.tpot, t.tpots = append(t.tpot, ms(j.tpot())), append(t.tpots, ms(j.tpot()))
	}
	if (t.s.TTFT == 0 || j.ttft() <= t.s.TTFT) && (t.s.ITL == 0 || j.tpot() <= t.s.ITL) {
		t.good++
	}
	t.now.Ended++
	t.now.Output += j.outputs
	if t.s.Controller != nil {
		t.s.window.ends = append(t.s.window.ends, End{t.s.now, j.ttft(), e2e, j.tpot(), j.input, j.cached(), j.outputs})
	}
	if t.s.Records {
		rec := Record{
			AtS: j.came.Seconds(), Input: j.input, Output: j.outputs, Cached: j.cached(), TTFT: ms(j.ttft()), TPOT: ms(j.tpot()), E2E: ms(e2e),
			Queued: ms(j.output1.Queued), Decode: j.worker.name, Why: j.reason(),
		}
		if j.output1.Remote {
			rec.Prefill = j.hop.from.name
		}
		r.Records = append(r.Records, rec)
	}
}

func (t *tally) refuse(j *job, why string) {
	t.s.result.Refused[why]++
	t.now.Refused++
	t.s.window.refused++
	if t.s.Records {
		t.s.result.Records = append(t.s.result.Records, Record{AtS: j.came.Seconds(), Input: j.input, Refused: why})
	}
}

// usage is what workers have done: what they worked, and the time in which they could.
func (t *tally) usage(role cluster.Role) (worked, existed time.Duration) {
	worked, existed = t.retiredWork[role], t.retiredTime[role]
	for _, w := range t.s.workers {
		if w.role == role {
			worked += w.workedBy(t.s.now)
			existed += w.served()
		}
	}
	return worked, existed
}

// served returns for how long the worker has been ready or draining.
func (w *worker) served() time.Duration {
	if w.readySince < 0 {
		return 0
	}
	return w.s.now - w.readySince
}

// retire counts a worker that leaves.
func (t *tally) retire(w *worker) {
	t.retiredWork[w.role] += w.workedBy(t.s.now)
	t.retiredTime[w.role] += w.served()
	t.retiredDevices += w.deviceSeconds()
	t.s.result.Preempted += int(w.engine.Engine.Stats().PreemptedTotal)
}

// deviceSeconds returns the time for which the worker has had its devices, times these.
func (w *worker) deviceSeconds() float64 {
	return (w.s.now - w.started).Seconds() * float64(w.profile.Devices)
}

// point ends an interval of the series.
func (t *tally) point() error {
	s, p := t.s, &t.now
	if s.now == t.pointed {
		return nil
	}
	p.AtS = s.now.Seconds()
	fill := func(values []float64, p50, p95 *float64) []float64 {
		q := quantiles(values)
		*p50, *p95 = q.P50, q.P95
		return values[:0]
	}
	t.ttfts = fill(t.ttfts, &p.TTFT50, &p.TTFT95)
	t.tpots = fill(t.tpots, &p.TPOT50, &p.TPOT95)
	p.Queued, p.Waiting = len(s.queue)+len(s.stranded), len(s.messages)
	for _, w := range s.workers {
		st := w.engine.Engine.Stats()
		p.Waiting, p.Running = p.Waiting+st.Waiting, p.Running+st.Running
		switch {
		case w.state != Ready:
			p.Other++
		case w.role == cluster.RolePrefill:
			p.Prefill++
		default:
			p.Decode++
			p.KVUse += float64(st.KVUsed()) / float64(st.KVTotal)
		}
	}
	p.KVUse /= float64(max(1, p.Decode))
	use := func(role cluster.Role) float64 {
		worked, existed := t.usage(role)
		w, e := worked-t.worked[role], existed-t.existed[role]
		t.worked[role], t.existed[role] = worked, existed
		return share(w, e)
	}
	p.PrefillUse, p.DecodeUse = use(cluster.RolePrefill), use(cluster.RoleDecode)
	s.result.Series = append(s.result.Series, *p)
	*p, t.pointed = Point{}, s.now
	return nil
}

func share(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return a.Seconds() / b.Seconds()
}

// end completes the result.
func (t *tally) end() {
	_ = t.point() // it fails never
	s, r := t.s, t.s.result
	r.SpanS = s.now.Seconds()
	r.TTFT, r.TPOT, r.E2E, r.Transfer, r.ITL = quantiles(t.ttft), quantiles(t.tpot), quantiles(t.e2e), quantiles(t.transfer), t.gaps.quantiles()
	r.MovedGB = t.bytes / 1e9
	if n := t.cached + t.computed; n > 0 {
		r.CachedShare = float64(t.cached) / float64(n)
	}
	r.PrefillBusy, r.DecodeBusy = share(t.usage(cluster.RolePrefill)), share(t.usage(cluster.RoleDecode))
	devices := t.retiredDevices
	for _, w := range s.workers {
		devices += w.deviceSeconds()
		r.Preempted += int(w.engine.Engine.Stats().PreemptedTotal)
	}
	r.DeviceHours = devices / 3600
	if s.TTFT > 0 || s.ITL > 0 {
		g := &Goodput{TTFT: ms(s.TTFT), ITL: ms(s.ITL), Good: t.good, Share: float64(t.good) / float64(max(1, r.Requests))}
		if r.SpanS > 0 {
			g.RequestsPerS = float64(t.good) / r.SpanS
		}
		if r.DeviceHours > 0 {
			g.PerDeviceHour = float64(t.good) / r.DeviceHours
		}
		r.Goodput = g
	}
}
