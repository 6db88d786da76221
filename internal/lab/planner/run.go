package planner

import (
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	core "github.com/dynctl/dynctl/internal/planner"
)

// Policy says how many workers there should be. It is asked at the end of every load interval.
type Policy interface {
	Name() string
	Decide(now time.Time, o core.Observation) core.Plan
}

// Setup is what a run does not vary.
type Setup struct {
	Config   core.Config
	Hardware Hardware
	// Evaluator is that of ours and of the clairvoyant; nil is core.Queueing over Hardware.
	Evaluator core.Evaluator
	Workers   Linear // of [Run]; what policies know of them is Hardware
	Times     Times
	Initial   core.Plan
}

// Result is what came of a run.
type Result struct {
	Policy      string
	Requests    int
	Missed      int // TTFT or ITL
	MissedTTFT  int
	MissedITL   int
	DeviceHours float64
	Most        core.Plan // the plan with the most devices
	Breaches    int       // times at which more devices were held than the budget allows
	Changes     int
}

// Share returns the share of requests that missed.
func (r Result) Share() float64 { return float64(r.Missed) / float64(max(r.Requests, 1)) }

// epoch is the time of second 0.
var epoch = time.Unix(1_700_000_000, 0)

// Clock returns the time of a second of a run.
func Clock(s float64) time.Time { return epoch.Add(duration(s)) }

// Run plays arrivals for so many seconds, and then until all requests are done.
func Run(setup Setup, arrivals []Arrival, seconds float64, policy Policy) Result {
	f := &fleet{cfg: setup.Config, hardware: setup.Workers, times: setup.Times, plan: setup.Initial}
	for _, role := range core.Roles {
		for range setup.Initial.Workers(role) {
			f.serve(f.start(role, 0))
		}
	}
	for _, a := range arrivals {
		f.at(a.At, func() { f.arrive(&request{Arrival: a}) })
	}
	result := Result{Policy: policy.Name(), Requests: len(arrivals)}
	interval := setup.Config.LoadInterval.Seconds()
	end := interval
	for f.now < seconds {
		f.until(end)
		o := f.observe(end - interval)
		result.count(setup, o)
		plan := policy.Decide(Clock(f.now), o)
		if plan != f.plan {
			result.Changes++
			f.follow(plan)
		}
		held := 0
		for _, w := range f.workers {
			if w.held {
				held += setup.Config.Role(w.role).DevicesPerWorker
			}
		}
		if held > setup.Config.Devices {
			result.Breaches++
		}
		result.DeviceHours += float64(held) * interval / 3600
		if setup.Config.DevicesOf(f.plan) > setup.Config.DevicesOf(result.Most) {
			result.Most = f.plan
		}
		end += interval
	}
	last := f.now
	f.until(last + 3600)
	result.count(setup, f.observe(last))
	result.Missed += result.Requests - f.total
	return result
}

// until plays all events up to a time.
func (f *fleet) until(end float64) {
	for len(f.events) > 0 && f.events[0].at <= end {
		e := f.events.pop()
		f.now = e.at
		e.do()
	}
	f.now = end
}

// observe returns the window since start, and begins a new one.
func (f *fleet) observe(start float64) core.Observation {
	o := core.Observation{Start: Clock(start), End: Clock(f.now), Arrived: f.arrived, Finished: f.finished, MaxLocalPrefill: f.plan.MaxLocalPrefill}
	f.total += len(f.done)
	for _, r := range f.done {
		seen := core.Request{Length: r.Length, TTFT: duration(r.first - r.At)}
		if r.OSL > 1 {
			seen.ITL = duration((r.last - r.first) / float64(r.OSL-1))
		}
		o.Requests = append(o.Requests, seen)
	}
	for _, r := range f.prompts {
		o.Prefill.Queued++
		o.Prefill.QueuedTokens += r.prompt
		o.Prefill.OldestAge = max(o.Prefill.OldestAge, duration(f.now-r.At))
	}
	o.Decode.Queued = len(f.ready)
	for _, w := range f.workers {
		if !w.held {
			continue
		}
		seen := core.Worker{Name: "worker-" + strconv.Itoa(w.name), State: w.state, KVTokens: w.kv, PromptTokens: w.promptTokens, PromptBusy: duration(w.promptSeconds)}
		for _, r := range w.queue {
			seen.QueuedTokens += r.prompt
		}
		if w.steps > 0 {
			seen.Step = duration(w.stepSeconds / w.steps)
		}
		role := w.role
		if w.action != "" {
			pending := core.Pending{Kind: w.action, Role: role, Since: Clock(w.since)}
			if w.action == core.ActionFlip {
				// The topology has it in its new role already; it serves when the flip is over.
				role = core.Roles[0]
				if w.role == role {
					role = core.Roles[1]
				}
				pending.Role, seen.State = role, core.WorkerStarting
			}
			o.Pending = append(o.Pending, pending)
		}
		if role == cluster.RolePrefill {
			o.Prefill.Workers = append(o.Prefill.Workers, seen)
		} else {
			o.Decode.Workers = append(o.Decode.Workers, seen)
		}
		w.steps, w.stepSeconds, w.promptSeconds, w.promptTokens = 0, 0, 0, 0
	}
	f.arrived, f.done, f.finished = 0, nil, nil
	return o
}

func (r *Result) count(setup Setup, o core.Observation) {
	for _, q := range o.Requests {
		lateFirst, lateNext := q.TTFT > setup.Config.Target.TTFT, q.ITL > setup.Config.Target.ITL
		if lateFirst {
			r.MissedTTFT++
		}
		if lateNext {
			r.MissedITL++
		}
		if lateFirst || lateNext {
			r.Missed++
		}
	}
}
