package tui

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// later is the laboratory so much later, with its workers changed.
func later(d time.Duration, change func(w []cluster.Worker)) cluster.Snapshot {
	s := labSnapshot()
	s.Time = s.Time.Add(d)
	change(s.Workers)
	return s
}

// at shows a snapshot at its own time.
func (sc *screen) at(s cluster.Snapshot) { sc.send(snapshotMsg{s, s.Time}) }

func asDrained(w *cluster.Worker) {
	begun := noon()
	w.Desire, w.State = cluster.DesireDrain, cluster.StateDrained
	w.Drain = &cluster.DrainStatus{Step: cluster.DrainSequences, StartedAt: begun, EndedAt: begun.Add(1200 * time.Millisecond), Sequences: 5, Finished: 3, Moved: 2, Safe: true}
}

func TestADrainIsFollowedToItsEnd(t *testing.T) {
	draining := func(w []cluster.Worker) {
		w[0].Desire, w[0].State = cluster.DesireDrain, cluster.StateDraining
		w[0].Drain = &cluster.DrainStatus{Step: cluster.DrainSequences, StartedAt: noon(), Sequences: 5, Left: 2}
	}
	tests := []struct {
		name  string
		steps []func(w []cluster.Worker)
		want  string
		open  int
	}{
		{"drained", []func([]cluster.Worker){draining, func(w []cluster.Worker) { asDrained(&w[0]) }}, "worker-1 drained in 1.2s: 3 finished, 2 moved, 0 cancelled. safe to stop", 0},
		{"drained between two snapshots", []func([]cluster.Worker){func(w []cluster.Worker) { asDrained(&w[0]) }}, "worker-1 drained in 1.2s", 0},
		{"drained, not said to be safe", []func([]cluster.Worker){func(w []cluster.Worker) { asDrained(&w[0]); w[0].Drain.Safe = false }}, "drain worker-1: accepted", 1},
		{"cut off", []func([]cluster.Worker){func(w []cluster.Worker) { asDrained(&w[0]); w[0].Drain.CutOff = 1 }}, "0 cancelled, 1 cut off. safe", 0},
		{"not yet shown", []func([]cluster.Worker){func([]cluster.Worker) {}}, "drain worker-1: accepted", 1},
		{"overdue", []func([]cluster.Worker){func(w []cluster.Worker) { draining(w); w[0].Drain.Overdue = true }}, "worker-1 did not drain by its deadline: 2 of 5 sequences left. it stays draining; r resumes it", 1},
		{"resumed", []func([]cluster.Worker){draining, func([]cluster.Worker) {}}, "drain worker-1: it was resumed meanwhile", 0},
		{"being removed", []func([]cluster.Worker){draining, func(w []cluster.Worker) { w[0].Desire = cluster.DesireRemove }}, "drain worker-1: it is being removed", 0},
		{"lost", []func([]cluster.Worker){func(w []cluster.Worker) {
			draining(w)
			w[0].State, w[0].Reason = cluster.StateLost, "its node is gone"
		}}, "drain worker-1: it is lost: its node is gone", 0},
		{"removed", []func([]cluster.Worker){draining, func(w []cluster.Worker) { w[0].Name = "worker-99" }}, "drain worker-1: it was removed", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sc := lab(t)
			sc.run(sc.press("d", "tab", "enter"))
			for i, change := range tt.steps {
				sc.at(later(time.Duration(i+1)*time.Second, change))
			}
			sc.has(tt.want)
			if got := len(sc.m.outcomes.open); got != tt.open {
				t.Errorf("%d orders are followed, want %d", got, tt.open)
			}
		})
	}
}

func TestAnOrderThatNoSnapshotShowsIsGivenUp(t *testing.T) {
	sc := lab(t)
	sc.run(sc.press("d", "tab", "enter"))
	sc.at(later(obeyWithin, func([]cluster.Worker) {}))
	if len(sc.m.outcomes.open) != 1 {
		t.Fatal("given up too early")
	}
	sc.at(later(obeyWithin+time.Second, func([]cluster.Worker) {}))
	sc.has("drain worker-1: the cluster does not show the order")
	if len(sc.m.outcomes.open) != 0 {
		t.Error("it is followed still")
	}
}

func TestAResumeIsFollowedUntilItServes(t *testing.T) {
	sc := lab(t)
	sc.run(sc.press("G", "r", "tab", "enter"))
	sc.at(later(time.Second, func(w []cluster.Worker) {
		w[6].Desire, w[6].State, w[6].Reason = cluster.DesireRun, cluster.StateFailed, "no memory"
	}))
	sc.has("worker-7 does not start: no memory. its agent goes on trying")
	sc.at(later(2*time.Second, func(w []cluster.Worker) { w[6].Desire, w[6].State = cluster.DesireRun, cluster.StateFailed }))
	if len(sc.m.outcomes.news) != 0 {
		t.Error("a failure is said twice")
	}
	sc.tick(flashFor)
	sc.at(later(10*time.Second, func(w []cluster.Worker) { w[6].Desire, w[6].State = cluster.DesireRun, cluster.StateReady }))
	sc.has("worker-7 serves again")
	if len(sc.m.outcomes.open) != 0 {
		t.Error("it is followed still")
	}
}

// Each outcome stays for its time, keys or not, and then the next one is shown.
func TestOutcomesAreShownOneAfterTheOther(t *testing.T) {
	sc := lab(t)
	sc.run(sc.press("d", "tab", "enter"))
	sc.run(sc.press("j", "d", "tab", "enter"))
	sc.at(later(time.Second, func(w []cluster.Worker) { asDrained(&w[0]); asDrained(&w[1]) }))
	sc.has("worker-1 drained in")
	sc.press("j")
	sc.has("worker-1 drained in")
	sc.tick(flashFor - time.Second)
	sc.has("worker-1 drained in")
	sc.tick(time.Second)
	sc.has("worker-2 drained in")
	sc.tick(flashFor)
	sc.lacks("drained in")
}

func TestOrdersFollowedAreBounded(t *testing.T) {
	sc := lab(t)
	var o outcomes
	for range 3 {
		o.begin(drainOf(1), sc.m.shown)
	}
	if len(o.open) != 1 {
		t.Errorf("%d orders about one worker", len(o.open))
	}
	for n := range 2 * maxPursued {
		o.begin(drainOf(100+n), sc.m.shown)
	}
	o.look(sc.m.shown)
	for n := range 2 * maxPursued {
		o.begin(drainOf(1000+n), sc.m.shown)
	}
	o.look(sc.m.shown)
	if len(o.open) != 0 || len(o.news) != maxPursued {
		t.Errorf("%d followed, %d to be said", len(o.open), len(o.news))
	}
}

func drainOf(n int) client.Action {
	return client.Action{Kind: client.ActDrain, Worker: cluster.WorkerName(n)}
}
