package tui

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// twoPools is the lab with a second model, which has a pool of so many decode workers.
func twoPools(decode int) cluster.Snapshot {
	s := labSnapshot()
	s.Topology.Pools = map[string]cluster.Pool{"small": {Model: cluster.ModelSpec{Name: "tiny", Path: "/models/tiny"}, Decode: decode}}
	for i := range decode {
		w := s.Workers[4]
		w.Name, w.Pool, w.State, w.Desire = fmt.Sprint("small-", i), "small", cluster.StateReady, cluster.DesireRun
		s.Workers = append(s.Workers, w)
	}
	return s
}

// A scale of a pool is about its workers alone, in the question and in what becomes of it.
func TestScaleOfAPool(t *testing.T) {
	sc := newScreen(t, twoPools(1), 120, 30, Options{})
	sc.has("qwen3-0.6b +1") // models
	sc.press(":", "type:scale pool=small decode=2", "enter")
	sc.has("From 0 prefill + 1 decode to 0 prefill + 2 decode")
	sc.run(sc.press("tab", "enter"))
	if got, want := sc.src.actions(), []client.Action{{Kind: client.ActScale, Pool: "small", Workers: cluster.Counts{cluster.RoleDecode: 2}}}; !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, want %+v", got, want)
	}
	for i, step := range []struct {
		decode int
		change func(*cluster.Snapshot)
		want   string
	}{
		{1, func(*cluster.Snapshot) {}, "scale --pool small decode=2: accepted"},
		{2, func(s *cluster.Snapshot) { s.Workers[len(s.Workers)-1].State = cluster.StateLoading }, "accepted"},
		{2, func(s *cluster.Snapshot) { s.Workers[0].State = cluster.StateLoading }, "pool small has 0 prefill + 2 decode workers"}, // another pool's
	} {
		s := twoPools(step.decode)
		s.Time = s.Time.Add(time.Duration(i+1) * time.Second)
		step.change(&s)
		sc.at(s)
		sc.has(step.want)
	}
	// The main pool is settled whatever the other one has.
	sc.run(sc.press(":", "type:scale decode=4", "enter", "tab", "enter"))
	s := twoPools(2)
	s.Topology.Decode, s.Time = 4, s.Time.Add(9*time.Second)
	ready := 0
	s.Workers = append(s.Workers[:6:6], s.Workers[len(s.Workers)-2:]...)
	for i := range s.Workers {
		s.Workers[i].State = cluster.StateReady
		ready++
	}
	s.Workers[ready-1].State = cluster.StateLoading
	sc.at(s)
	sc.has("the cluster has 2 prefill + 4 decode workers")

	for line, want := range map[string]string{
		"scale pool=large decode=1":            "pool large: there is no such pool",
		"scale pool=small":                     "wrong arguments: :scale",
		"scale pool= decode=1":                 "wrong arguments: :scale",
		"scale pool=small pool=small decode=1": "wrong arguments: :scale",
		"scale pool=small prefill=1 decode=-1": "decode",
		"scale pool=small prefill=1 decode=0 ": "prefill workers need at least one decode worker",
	} {
		sc := newScreen(t, twoPools(1), 120, 30, Options{})
		sc.press(":", "type:"+line, "enter")
		sc.has(want)
	}
}
