package explain

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// The terms, as printed, add up to the cost, as printed.
func TestPrintedTermsAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		var terms []cluster.CostTerm
		cost := 0.0
		for i := range 1 + rng.IntN(5) {
			v := (rng.Float64() - 0.3) * math.Pow(10, float64(rng.IntN(7)-3))
			terms = append(terms, cluster.CostTerm{Name: "t" + strconv.Itoa(i), Value: v})
			cost += v
		}
		var sum int64
		for i, part := range strings.Split(termsText(terms, cost), " + ") {
			name, value, _ := strings.Cut(part, " ")
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || name != terms[i].Name || math.Abs(v-terms[i].Value) > 0.004 {
				t.Fatalf("%q for %+v: %v", part, terms[i], err)
			}
			sum += units(v)
		}
		if costText(cost) != decimals(sum) {
			t.Fatalf("%s adds up to %s, printed is %s", termsText(terms, cost), decimals(sum), costText(cost))
		}
	}
	if got := termsText([]cluster.CostTerm{{Name: "load", Value: 1}}, math.Inf(1)); got != "-" {
		t.Errorf("infinite: %q", got)
	}
}

func TestSecondBest(t *testing.T) {
	d := cluster.RouterDecision{Chosen: "worker-1", Candidates: []cluster.RouteCandidate{
		{Worker: "worker-1", Cost: 1}, {Worker: "worker-2", Cost: 5}, {Worker: "worker-3", Cost: 3}, {Worker: "worker-4", Cost: 0, Excluded: "draining"}, {Worker: "worker-5", Cost: math.NaN()},
	}}
	if at := secondBest(&d); at != 2 {
		t.Errorf("second best is %d", at)
	}
	d.Candidates = d.Candidates[:1]
	if at := secondBest(&d); at != -1 {
		t.Errorf("of one: %d", at)
	}
}
