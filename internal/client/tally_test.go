package client

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// event is v as it arrives from the event plane.
func event(t *testing.T, v any) events.Event {
	t.Helper()
	b, err := protocol.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return events.Event{Payload: b}
}

// bubble runs a test in fake time.
func bubble(t *testing.T, test func(t *testing.T, y *tally)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newTally()) })
}

// viewOf is a view that knows the given workers, without statuses.
func viewOf(sts ...cluster.WorkerStatus) View {
	v := View{Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{}}
	for _, st := range sts {
		v.Assignments[st.Name] = cluster.Assignment{Name: st.Name, Role: st.Role, Desire: cluster.DesireRun}
		v.Status[st.Name] = st
	}
	return v
}

func fill(y *tally, v View, depth *events.Depth) cluster.Snapshot {
	var s cluster.Snapshot
	y.fill(&s, v, depth, time.Now())
	return s
}

func is(p *float64, want float64) bool { return p != nil && math.Abs(*p-want) < 1e-6*max(want, 1) }

func show(p *float64) string {
	if p == nil {
		return "unknown"
	}
	return fmt.Sprint(*p)
}

func TestTokenRates(t *testing.T) {
	for _, role := range []cluster.Role{cluster.RoleDecode, cluster.RolePrefill} {
		t.Run(string(role), func(t *testing.T) {
			bubble(t, func(t *testing.T, y *tally) {
				st := cluster.WorkerStatus{Name: "worker-1", Role: role, InstanceID: 7, State: cluster.StateReady}
				report := func(after time.Duration, tokens uint64) *float64 {
					time.Sleep(after)
					st.UpdatedAt = time.Now()
					st.Stats.StepsTotal++
					if role == cluster.RolePrefill {
						st.Stats.ComputedTotal += tokens
						st.Stats.GeneratedTotal += 3 // not what a prefill worker is for
					} else {
						st.Stats.GeneratedTotal += tokens
					}
					y.workerStatus(event(t, st))
					return fill(y, viewOf(st), nil).Workers[0].TokS
				}
				if got := report(time.Second, 5000); got != nil {
					t.Errorf("a rate from one status: %s", show(got))
				}
				if got := report(2*time.Second, 100); !is(got, 50) {
					t.Errorf("100 tokens in 2 s: %s", show(got))
				}
				if got := report(10*time.Millisecond, 1); !is(got, 50) {
					t.Errorf("a status that followed at once changed the rate to %s", show(got))
				}
				if got := report(time.Second, 0); !is(got, 1/1.01) {
					t.Errorf("1 token in 1.01 s: %s", show(got))
				}
				// The same status once more, as the store still has it, changes nothing.
				y.status(st)
				if got := fill(y, viewOf(st), nil).Workers[0].TokS; !is(got, 1/1.01) {
					t.Errorf("after a repetition: %s", show(got))
				}
				// A restart counts from zero: no rate, and no absurd one.
				st.InstanceID, st.Stats = 8, cluster.WorkerStats{}
				if got := report(time.Second, 10); got != nil {
					t.Errorf("after a restart: %s", show(got))
				}
				if got := report(time.Second, 20); !is(got, 20) {
					t.Errorf("second status after the restart: %s", show(got))
				}
			})
		})
	}
}

func TestOlderStatusIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		old := cluster.WorkerStatus{Name: "worker-1", InstanceID: 7, State: cluster.StateReady, UpdatedAt: time.Now()}
		time.Sleep(time.Second)
		now := old
		now.UpdatedAt, now.State = time.Now(), cluster.StateDraining
		y.workerStatus(event(t, now))
		if got := fill(y, viewOf(old), nil).Workers[0].State; got != cluster.StateDraining {
			t.Errorf("the store's older status wins: %s", got)
		}
	})
}

// A worker that others outlive is silent after seconds; when no events come at all, the
// heartbeats in the store are its signs of life. The clocks of hosts do not matter.
func TestSilentWorker(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		now := func(name string) cluster.WorkerStatus {
			return cluster.WorkerStatus{Name: name, InstanceID: 7, State: cluster.StateReady, UpdatedAt: time.Now().Add(-time.Hour)}
		}
		dead, alive := now("worker-1"), now("worker-2")
		y.workerStatus(event(t, dead))
		died := time.Now()
		silent := func() (one, two bool) {
			w := fill(y, viewOf(dead, alive), nil).Workers
			if !w[0].HeardAt.Equal(died) {
				t.Errorf("heard at %s, want %s", w[0].HeardAt, died)
			}
			return w[0].Stale, w[1].Stale
		}
		for time.Since(died) < cluster.SilentAfter {
			time.Sleep(cluster.StatusInterval)
			alive = now("worker-2")
			y.workerStatus(event(t, alive))
			if one, two := silent(); one || two {
				t.Errorf("after %s: silent %t %t", time.Since(died), one, two)
			}
		}
		time.Sleep(cluster.StatusInterval)
		y.workerStatus(event(t, now("worker-2")))
		if one, two := silent(); !one || two {
			t.Errorf("after %s: silent %t %t, want only the first", time.Since(died), one, two)
		}
		for range 10 { // no bus: only the store speaks
			time.Sleep(cluster.HeartbeatInterval)
			alive = now("worker-2")
			if one, two := silent(); two || one != (time.Since(died) > 3*cluster.HeartbeatInterval/2) {
				t.Errorf("without events, after %s: silent %t %t", time.Since(died), one, two)
			}
		}
	})
}

// A worker that was asked and did not answer is silent at once; an answer, or an event that
// came in the meantime, shows that it lives.
func TestMuteWorker(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		type answers = map[cluster.InstanceID]cluster.WorkerStatus
		st := cluster.WorkerStatus{Name: "worker-1", InstanceID: 7, State: cluster.StateReady, UpdatedAt: time.Now().Add(-time.Minute)}
		silent := func() bool { return fill(y, viewOf(st), nil).Workers[0].Silent() }
		newer := func() cluster.WorkerStatus {
			st := st
			st.UpdatedAt = time.Now()
			return st
		}
		y.stored(viewOf(st))
		y.polled(time.Now(), answers{}, map[cluster.InstanceID]bool{7: true})
		if !silent() {
			t.Error("the worker did not answer and counts as heard")
		}
		time.Sleep(time.Second)
		if y.polled(time.Now(), answers{7: newer()}, nil); silent() {
			t.Error("silent although it answered")
		}
		asked := time.Now()
		time.Sleep(time.Second)
		y.workerStatus(event(t, newer()))
		if y.polled(asked, answers{}, map[cluster.InstanceID]bool{7: true}); silent() {
			t.Error("silent although an event came after the question")
		}
		if y.polled(time.Now(), answers{}, map[cluster.InstanceID]bool{7: true}); !silent() {
			t.Error("the second question without an answer does not count")
		}
	})
}

// The end of a worker is told by the store: an event of the former run does not
// bring it back to life.
func TestStoreTellsTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		st := cluster.WorkerStatus{Name: "worker-1", InstanceID: 7, State: cluster.StateReady, UpdatedAt: time.Now(), StartedAt: time.Now()}
		y.workerStatus(event(t, st))
		time.Sleep(2 * time.Minute)
		if w := fill(y, viewOf(st), nil).Workers[0]; w.Uptime == nil || *w.Uptime != 2*time.Minute || !w.Stale {
			t.Errorf("silent for two minutes: uptime %v, stale %t", w.Uptime, w.Stale)
		}
		v := viewOf(st)
		delete(v.Status, "worker-1")
		if w := fill(y, v, nil).Workers[0]; w.State != cluster.StatePending || w.Uptime != nil || w.TokS != nil || w.Stale {
			t.Errorf("status gone: %+v", w)
		}
		if w := fill(y, View{}, nil).Workers; len(w) != 0 {
			t.Errorf("assignment gone: %+v", w)
		}
		if len(y.workers) != 0 {
			t.Errorf("left behind: %v", y.workers)
		}
	})
}

func TestHitRate(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		st := cluster.WorkerStatus{Name: "worker-1", Role: cluster.RoleDecode, InstanceID: 7, StartedAt: time.Now().Add(-time.Hour)}
		report := func(after time.Duration, prompt, cached uint64) *float64 {
			time.Sleep(after)
			st.UpdatedAt = time.Now()
			st.Stats.PromptTokensTotal += prompt
			st.Stats.CachedTokensTotal += cached
			y.status(st)
			return fill(y, viewOf(st), nil).Workers[0].HitRate
		}
		if got := report(0, 10000, 0); got != nil {
			t.Errorf("what an hour-old worker did before is not within the window: %s", show(got))
		}
		if got := report(time.Second, 0, 0); got != nil {
			t.Errorf("no prompts, no rate: %s", show(got))
		}
		if got := report(time.Second, 100, 25); !is(got, 0.25) {
			t.Errorf("25 of 100: %s", show(got))
		}
		for range 298 {
			report(time.Second, 1, 1)
		}
		if got := report(time.Second, 0, 0); !is(got, float64(25+298)/398) {
			t.Errorf("within five minutes: %s", show(got))
		}
		for range 10 {
			report(time.Second, 0, 0)
		}
		if got := report(time.Second, 0, 0); !is(got, 1) {
			t.Errorf("the first hundred are too old by now: %s", show(got))
		}
		if n := len(y.workers["worker-1"].samples); n > 302 {
			t.Errorf("%d samples are kept", n)
		}
		// A run that began within the window counts from its start.
		st.InstanceID, st.StartedAt, st.Stats = 8, time.Now().Add(-time.Minute), cluster.WorkerStats{}
		if got := report(time.Second, 50, 10); !is(got, 0.2) {
			t.Errorf("young worker: %s", show(got))
		}
	})
}

func TestKVEvents(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		send := func(worker cluster.InstanceID, id uint64, age time.Duration) {
			y.kvEvent(event(t, cluster.KVEvent{WorkerID: worker, EventID: id, Kind: cluster.KVStored, Time: time.Now().Add(-age)}))
		}
		if s := fill(y, View{}, nil); s.KVEventRate != nil || s.KVEventLag != nil || s.KVEventGaps != 0 || s.Events == nil || s.Decisions == nil {
			t.Errorf("nothing known yet: %+v", s)
		}
		send(1, 40, 30*time.Millisecond) // the first one seen is no gap
		send(1, 41, 30*time.Millisecond)
		send(1, 45, 30*time.Millisecond) // three are missing
		send(2, 0, 30*time.Millisecond)
		send(2, 2, 5*time.Millisecond) // one is missing
		send(2, 1, 5*time.Millisecond) // late: no further gap
		send(2, 3, 5*time.Millisecond)
		time.Sleep(2 * time.Second)
		s := fill(y, View{}, nil)
		if s.KVEventGaps != 4 || !is(s.KVEventRate, 3.5) || *s.KVEventLag != 5*time.Millisecond {
			t.Errorf("gaps %d, rate %s, lag %s, want 4, 3.5 and 5ms", s.KVEventGaps, show(s.KVEventRate), s.KVEventLag)
		}
		if len(s.Events) != 7 || s.Events[0].EventID != 3 || s.Events[6].EventID != 40 {
			t.Errorf("events %+v, want the newest first", s.Events)
		}
		send(3, 0, -time.Hour) // a clock ahead of ours
		time.Sleep(time.Second)
		if s = fill(y, View{}, nil); *s.KVEventLag != 0 || !is(s.KVEventRate, 1) {
			t.Errorf("lag %s, rate %s", s.KVEventLag, show(s.KVEventRate))
		}
		y.kvEvent(events.Event{Payload: []byte("garbage")})
		for id := range uint64(3 * keepEvents) {
			send(4, id, 0)
		}
		if s = fill(y, View{}, nil); len(s.Events) != keepEvents || s.Events[0].EventID != 3*keepEvents-1 || s.Events[keepEvents-1].EventID != 2*keepEvents {
			t.Errorf("%d events kept, %d to %d", len(s.Events), s.Events[len(s.Events)-1].EventID, s.Events[0].EventID)
		}
		time.Sleep(forgetAfter + time.Second)
		if fill(y, View{}, nil); len(y.nextKV) != 0 {
			t.Errorf("silent workers are remembered: %v", y.nextKV)
		}
	})
}

func TestDecisions(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		for i := range keepEvents + 50 {
			y.decision(event(t, cluster.RouterDecision{RequestID: fmt.Sprint("r", i), Phase: cluster.RoleDecode, Chosen: "worker-1"}))
		}
		last := fmt.Sprint("r", keepEvents+40)
		y.decision(event(t, cluster.RouterDecision{RequestID: last, Phase: cluster.RoleDecode, Chosen: "worker-1", Prefill: "worker-2"}))
		y.decision(event(t, cluster.RouterDecision{RequestID: last, Phase: cluster.RolePrefill, Chosen: "worker-2"}))
		y.decision(event(t, cluster.RouterDecision{RequestID: "r3", Phase: cluster.RoleDecode, Chosen: "worker-9"})) // forgotten: new again
		y.decision(events.Event{Payload: []byte{0xc1}})
		s := fill(y, View{}, nil)
		if len(s.Decisions) != keepEvents || s.Decisions[0].RequestID != "r3" || s.Decisions[1].Phase != cluster.RolePrefill {
			t.Fatalf("%d decisions, newest %+v", len(s.Decisions), s.Decisions[:2])
		}
		n := 0
		for _, d := range s.Decisions {
			if d.RequestID == last && d.Phase == cluster.RoleDecode {
				if n++; d.Prefill != "worker-2" {
					t.Errorf("not brought up to date: %+v", d)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d times in the list", n)
		}
		// A snapshot is a copy.
		s.Decisions[0].RequestID = "changed"
		if got := fill(y, View{}, nil).Decisions[0].RequestID; got != "r3" {
			t.Errorf("a reader changed the tally: %s", got)
		}
	})
}

func TestLatencyWindow(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		report := func(front cluster.InstanceID, ttft time.Duration, n int) {
			f := cluster.FrontendStats{InstanceID: front, Finished: n, InFlight: 3, Cancelled: 1, Rejected: 2, Time: time.Now().Add(time.Hour)}
			for range n {
				f.TTFT.Observe(ttft)
			}
			y.frontend(event(t, f))
		}
		if l := fill(y, View{}, nil).Latency; l.TTFT.P50 != nil || l.Requests != 0 || l.WindowS != 60 {
			t.Errorf("nothing observed: %+v", l)
		}
		report(1, 100*time.Millisecond, 90)
		report(2, time.Second, 10)
		s := fill(y, View{}, nil)
		near := func(p *float64, want float64) bool { return p != nil && math.Abs(*p/want-1) < 0.1 }
		if !near(s.Latency.TTFT.P50, 100) || !near(s.Latency.TTFT.P95, 1000) || s.Latency.ITL.P50 != nil || s.Latency.Requests != 100 {
			t.Errorf("latency %s and %s ms of %d", show(s.Latency.TTFT.P50), show(s.Latency.TTFT.P95), s.Latency.Requests)
		}
		if s.Queue.InFlight == nil || *s.Queue.InFlight != 6 || s.Queue.Cancelled != 2 || s.Queue.Rejected != 4 {
			t.Errorf("queue %+v", s.Queue)
		}
		time.Sleep(11 * time.Second)
		report(1, 10*time.Millisecond, 0)
		if s = fill(y, View{}, nil); *s.Queue.InFlight != 3 {
			t.Errorf("in flight %d: a frontend that fell silent still counts", *s.Queue.InFlight)
		}
		time.Sleep(50 * time.Second)
		report(1, 10*time.Millisecond, 7)
		if s = fill(y, View{}, nil); s.Latency.Requests != 7 || !near(s.Latency.TTFT.P99, 10) {
			t.Errorf("after 61 s: %d requests, p99 %s", s.Latency.Requests, show(s.Latency.TTFT.P99))
		}
		if len(y.latency) > 2 {
			t.Errorf("%d reports are kept", len(y.latency))
		}
	})
}

// Percentiles of KV transfers are about the window: what decode workers had counted before
// the first status, and what is older, is left out.
func TestTransferPercentiles(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		st := cluster.WorkerStatus{Name: "worker-1", Role: cluster.RoleDecode, InstanceID: 7}
		var times cluster.Histogram
		report := func(took time.Duration, n int) cluster.Percentiles {
			for range n {
				times.Observe(took)
			}
			sent := times
			time.Sleep(time.Second / 4)
			st.UpdatedAt, st.Stats.TransferTimes = time.Now(), &sent
			y.workerStatus(event(t, st))
			return fill(y, viewOf(st), nil).Latency.Transfers
		}
		near := func(p *float64, want float64) bool { return p != nil && math.Abs(*p/want-1) < 0.1 }
		if p := report(time.Minute, 100); p.P50 != nil {
			t.Errorf("transfers before the first status count: %s", show(p.P50))
		}
		report(10*time.Millisecond, 45)
		if p := report(10*time.Millisecond, 45); !near(p.P50, 10) || !near(p.P99, 10) {
			t.Errorf("90 of 10 ms: %s, %s", show(p.P50), show(p.P99))
		}
		if p := report(time.Second, 10); !near(p.P50, 10) || !near(p.P95, 1000) || !near(p.P99, 1000) {
			t.Errorf("90 of 10 ms and 10 of 1 s: %s, %s, %s", show(p.P50), show(p.P95), show(p.P99))
		}
		prefill := st
		prefill.Name, prefill.Role, prefill.InstanceID = "worker-2", cluster.RolePrefill, 8
		y.workerStatus(event(t, prefill))
		prefill.UpdatedAt, prefill.Stats.TransferTimes = time.Now().Add(time.Second), &cluster.Histogram{}
		for range 100 {
			prefill.Stats.TransferTimes.Observe(10 * time.Second)
		}
		y.workerStatus(event(t, prefill))
		if p := report(time.Second, 0); !near(p.P99, 1000) {
			t.Errorf("a transfer counts at its sender too: %s", show(p.P99))
		}
		time.Sleep(latencyWindow - time.Second/2)
		if p := report(20*time.Millisecond, 10); p.P50 == nil || len(y.transfers) > 2 {
			t.Errorf("p50 %s, %d kept", show(p.P50), len(y.transfers))
		}
		time.Sleep(2 * time.Second)
		if p := report(0, 0); !near(p.P50, 20) || !near(p.P99, 20) {
			t.Errorf("only the newest are within the window: %s, %s", show(p.P50), show(p.P99))
		}
		// A restart counts from zero.
		st.InstanceID, times = 9, cluster.Histogram{}
		if p := report(time.Hour, 5); !near(p.P99, 20) {
			t.Errorf("after a restart: %s", show(p.P99))
		}
	})
}

func TestTransfers(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		if l := fill(y, View{}, nil).Latency; l.Transfer != nil || l.TransferBS != nil {
			t.Errorf("no transfers: %+v", l)
		}
		decode := cluster.WorkerStatus{Name: "worker-1", Role: cluster.RoleDecode, InstanceID: 1, UpdatedAt: time.Now(),
			Stats: cluster.WorkerStats{TransfersTotal: 4, TransferBytesTotal: 8000, TransferNanosTotal: 8e6}}
		prefill := decode // the same transfers, seen from the other side
		prefill.Name, prefill.Role, prefill.InstanceID = "worker-2", cluster.RolePrefill, 2
		if l := fill(y, viewOf(decode, prefill), nil).Latency; !is(l.Transfer, 2) || !is(l.TransferBS, 1e6) {
			t.Errorf("4 transfers of 2 ms with 8000 bytes: %s ms, %s bytes/s", show(l.Transfer), show(l.TransferBS))
		}
	})
}

func TestQueue(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		if q := fill(y, View{}, nil).Queue; q.Prefill != nil || q.Waiting != nil || q.InFlight != nil || q.AdmittedS != nil || len(q.History) != 1 || q.History[0] != nil {
			t.Errorf("nothing known: %+v", q)
		}
		a := cluster.WorkerStatus{Name: "worker-1", Role: cluster.RoleDecode, InstanceID: 1, UpdatedAt: time.Now(),
			Stats: cluster.WorkerStats{Waiting: 2, RemoteWait: 1, RequestsTotal: 1000, PreemptedTotal: 5, FallbackTotal: 6}}
		b := cluster.WorkerStatus{Name: "worker-2", Role: cluster.RolePrefill, InstanceID: 2, UpdatedAt: time.Now(),
			Stats: cluster.WorkerStats{Waiting: 3, RequestsTotal: 77}}
		time.Sleep(time.Second)
		q := fill(y, viewOf(a, b), &events.Depth{Pending: 10, InWork: 4}).Queue
		if *q.Prefill != 10 || *q.PrefillBusy != 4 || *q.Waiting != 5 || *q.RemoteWait != 1 || q.Preempted != 5 || q.Fallbacks != 6 {
			t.Errorf("queue %+v", q)
		}
		if !is(q.AdmittedS, 0) {
			t.Errorf("requests from before we looked count as a rate: %s", show(q.AdmittedS))
		}
		time.Sleep(2 * time.Second)
		a.UpdatedAt, a.Stats.RequestsTotal = time.Now(), 1010
		b.UpdatedAt, b.Stats.RequestsTotal = time.Now(), 99
		if q = fill(y, viewOf(a, b), nil).Queue; !is(q.AdmittedS, 5) || q.Prefill != nil {
			t.Errorf("10 requests in 2 s: %s, depth %v", show(q.AdmittedS), q.Prefill)
		}
		// A restarted worker counts from zero, and the rate does not jump.
		time.Sleep(time.Second)
		a.UpdatedAt, a.InstanceID, a.Stats.RequestsTotal = time.Now(), 3, 4
		if q = fill(y, viewOf(a, b), nil).Queue; !is(q.AdmittedS, 0) {
			t.Errorf("after a restart: %s", show(q.AdmittedS))
		}
	})
}

func TestHistory(t *testing.T) {
	for _, interval := range []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, y *tally) {
				begin := time.Now()
				var q cluster.QueueStats
				for i := 0; time.Since(begin) < time.Minute; i++ {
					q = fill(y, View{}, &events.Depth{Pending: int(time.Since(begin).Seconds())}).Queue
					time.Sleep(interval)
				}
				if n := len(q.History); n < 55 || n > 61 {
					t.Fatalf("%d samples in a minute", n)
				}
				gaps := 0
				for i, p := range q.History {
					if p == nil {
						gaps++
					} else if math.Abs(*p-float64(i)) > 1 {
						t.Errorf("sample %d is of second %v", i, *p)
					}
				}
				want := 0
				if interval > time.Second {
					want = int(float64(len(q.History)) * (1 - float64(time.Second)/float64(interval)))
				}
				if d := gaps - want; d < -2 || d > 2 {
					t.Errorf("%d gaps in %d samples, want about %d", gaps, len(q.History), want)
				}
			})
		})
	}
}

func TestHistoryIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, y *tally) {
		for i := range 3 * historyLen {
			fill(y, View{}, &events.Depth{Pending: i})
			time.Sleep(time.Second + time.Duration(i%7-3)*40*time.Millisecond) // a ticker that jitters
		}
		q := fill(y, View{}, nil).Queue
		if len(q.History) != historyLen || q.History[historyLen-1] != nil {
			t.Errorf("%d samples, last %s, want %d and a gap", len(q.History), show(q.History[len(q.History)-1]), historyLen)
		}
		for i, p := range q.History[:historyLen-1] {
			if p == nil {
				t.Errorf("sample %d is a gap: jitter lost it", i)
			}
		}
		time.Sleep(time.Hour) // asleep: not an hour of gaps
		if q = fill(y, View{}, &events.Depth{Pending: 1}).Queue; len(q.History) != 1 {
			t.Errorf("after an hour: %d samples", len(q.History))
		}
	})
}

// A thousand workers' events cost the same whatever is kept already.
func BenchmarkKVEvent(b *testing.B) {
	y := newTally()
	body, err := protocol.Marshal(cluster.KVEvent{WorkerID: 1, Kind: cluster.KVStored, Stored: make([]cluster.KVStoredBlock, 4), Time: time.Now()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		y.kvEvent(events.Event{Payload: body})
	}
}

// What is kept of a cluster does not grow with time: a dashboard may run for weeks.
func TestATallyIsBounded(t *testing.T) {
	patience.OneGoroutine(t)
	bubble(t, func(t *testing.T, y *tally) {
		const workers, step, hour = 4, 5 * time.Second, 720 // steps
		count := func() (n int) {
			for _, w := range y.workers {
				n += len(w.samples)
			}
			return n + len(y.workers) + len(y.kv.list) + len(y.nextKV) + len(y.decisions.list) + len(y.latency) + len(y.inFlight) + len(y.history.samples)
		}
		pass := func(n int) {
			var sts []cluster.WorkerStatus
			for i := range workers {
				// Each worker starts again every ten minutes, under another id.
				id := cluster.InstanceID(n/120*workers + i + 1)
				st := cluster.WorkerStatus{Name: cluster.WorkerName(i + 1), Role: cluster.RoleDecode, InstanceID: id, UpdatedAt: time.Now(), Stats: cluster.WorkerStats{StepsTotal: uint64(n % 120)}}
				y.workerStatus(event(t, st))
				sts = append(sts, st)
				y.kvEvent(event(t, cluster.KVEvent{WorkerID: id, Worker: st.Name, EventID: uint64(n)}))
				y.decision(event(t, cluster.RouterDecision{RequestID: fmt.Sprint(n, i), Phase: cluster.RoleDecode}))
			}
			y.frontend(event(t, cluster.FrontendStats{InstanceID: cluster.InstanceID(n/120 + 1e6)}))
			fill(y, viewOf(sts...), nil)
			time.Sleep(step)
		}
		most := 0
		for n := range 3 * hour {
			pass(n)
			switch {
			case n < 2*hour: // as long as ids of silent workers are remembered, and more
				most = max(most, count())
			case count() > most:
				t.Fatalf("after %v %d things are kept, before that %d", time.Duration(n)*step, count(), most)
			}
		}
	})
}
