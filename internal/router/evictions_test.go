package router

import (
	"fmt"
	"math"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// evictView has workers with caches of 100 blocks that hold these leading blocks.
func evictView(overlaps ...int) View {
	var v View
	for i, n := range overlaps {
		v.Candidates = append(v.Candidates, Candidate{ID: cluster.InstanceID(i + 1), Worker: fmt.Sprint("worker-", i+1), KVBlocks: 100, Overlap: Overlap{Device: n}})
	}
	return v
}

// evictRequest is a prompt of ten blocks.
func evictRequest(id string, first uint64) Request {
	r := Request{ID: id, PromptTokens: 165, BlockSize: 16}
	for k := range uint64(10) {
		r.Hashes = append(r.Hashes, first+k)
	}
	return r
}

// lately returns how many prompt tokens a worker has computed lately.
func lately(l *Load, id cluster.InstanceID) float64 {
	return float64(l.workers.of(id).lately) * l.evicts.left()
}

// Prompts that no worker has go to the worker whose cache forgets least.
func TestEvictions(t *testing.T) {
	l, p := NewLoad(), ByCost("first", func(_ Request, _ View, free []Candidate, terms *Terms) {
		turn := terms.Add(cluster.TermTurn)
		for i := range free {
			turn[i] = float64(i)
		}
	})
	serve := func(id string, first uint64, v View) Decision {
		t.Helper()
		d, f, err := l.Choose(evictRequest(id, first), v, p.Pick)
		if err != nil {
			t.Fatal(err)
		}
		f.End()
		return d
	}
	serve("a", 100, evictView(0, 0)) // 165 tokens are computed
	if d, err := l.Preview(evictRequest("b", 200), evictView(0, 0), policies[KV].Pick); err != nil || d.Candidates[0].Terms[3] != (cluster.CostTerm{Name: cluster.TermEvict}) {
		t.Errorf("nothing was reused so far: %v, %+v", err, d.Candidates[0].Terms)
	}
	serve("c", 100, evictView(10, 0)) // of which all but 5 are reused
	const capacity = 2 * 100 * 16
	want := 165. / 16 * (1 - 170./330) * 170 / 1600
	for i := range 20 {
		d, err := l.Preview(evictRequest(fmt.Sprint("d", i), 300), evictView(0, 0), policies[KV].Pick)
		if err != nil || d.Chosen.Worker != "worker-2" {
			t.Fatalf("%v: chose %+v", err, d.Candidates)
		}
		if got := d.Candidates[1].Terms[3]; got.Name != cluster.TermEvict || math.Abs(got.Value-want) > 1e-9 || d.Candidates[0].Terms[3].Value != 0 {
			t.Fatalf("terms %+v and %v, want %v", got, d.Candidates[0].Terms[3], want)
		}
	}
	before := lately(l, 1)
	v := evictView(0, 0)
	v.Candidates[0].Excluded = "busy"
	for i := range 20 {
		serve(fmt.Sprint("e", i), uint64(1000+100*i), v) // the other worker computes 3,300 tokens
	}
	if got := lately(l, 1); math.Abs(got-before*math.Exp(-3300./capacity)) > 1e-9 {
		t.Errorf("%v fell to %v", before, got)
	}
	if d, err := l.Preview(evictRequest("f", 5000), evictView(0, 0), policies[KV].Pick); err != nil || d.Chosen.Worker != "worker-1" {
		t.Errorf("%v: chose %+v", err, d.Candidates)
	}
	unknown := evictView(0, 0)
	unknown.Candidates[0].KVBlocks, unknown.Candidates[1].KVBlocks = 0, 0
	d, err := l.Preview(evictRequest("g", 6000), unknown, policies[KV].Pick)
	if err != nil || d.Candidates[0].Terms[3].Value != 0 || d.Candidates[1].Terms[3].Value != 0 {
		t.Errorf("%v: caches of unknown size: %+v", err, d.Candidates)
	}
}

// What other routers send counts once: a snapshot of what is in flight adds nothing.
func TestEvictionsOfOthers(t *testing.T) {
	l := NewLoad()
	m := NewMirror(l)
	if _, err := l.Preview(evictRequest("a", 1), evictView(0, 0), policies[KV].Pick); err != nil {
		t.Fatal(err)
	}
	begin := cluster.FlightChange{Kind: cluster.FlightBegin, Flight: 1, Worker: 2, Hashes: []uint64{1, 2}, Uncached: 32}
	m.Apply(begin)
	m.Apply(begin)
	if got := lately(l, 2); math.Abs(got-32) > 1e-9 || l.evicts.clock != 32 {
		t.Errorf("%v at %v", got, l.evicts.clock)
	}
	m.Replace([]cluster.FlightChange{begin, {Kind: cluster.FlightBegin, Flight: 2, Worker: 2, Uncached: 48}})
	if got := lately(l, 2); math.Abs(got-32) > 1e-9 || l.evicts.clock != 32 || m.Len() != 2 {
		t.Errorf("%v at %v after a snapshot, %d flights", got, l.evicts.clock, m.Len())
	}
}

// Workers that are gone are forgotten.
func TestEvictionsAreBounded(t *testing.T) {
	l := NewLoad()
	for i := range 1000 {
		v := evictView(0)
		v.Candidates[0].ID = cluster.InstanceID(i + 1)
		_, f, err := l.Choose(evictRequest(fmt.Sprint(i), uint64(i)), v, policies[KV].Pick)
		if err != nil {
			t.Fatal(err)
		}
		f.End()
	}
	if n := len(l.workers.ids); n > 70 {
		t.Errorf("%d workers are remembered, one is there", n)
	}
}
