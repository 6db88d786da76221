package route

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
)

// Dynamo's costs, computed by hand.
func TestDynamoCosts(t *testing.T) {
	r := router.Request{ID: "r", PromptTokens: 64, BlockSize: 16, Hashes: []uint64{1, 2, 3, 4}}
	c := []router.Candidate{{ID: 1, PrefillTokens: 32, InFlight: 3, ActiveBlocks: 5, Shared: 2, Overlap: router.Overlap{Device: 1, Host: 1, Disk: 1}}, {ID: 2}}
	k := dynamoDefaults
	k.OverlapWeight, k.PrefillScale, k.CreditDecay, k.RequestWeight = 2, 3, 1, 0.5
	for _, tc := range []struct {
		name  string
		price router.Price
		a, b  float64
	}{
		{"0.8", priceDynamo08(dynamoDefaults), 2 + 1 + 7, 4 + 4},
		{"0.8 with a weight", priceDynamo08(k), 2*(2+1) + 7, 2*4 + 4},
		{"1.5", priceDynamo15(dynamoDefaults), 2 + (4 - 1 - 0.75 - 0.25) + 7, 4 + 4},
		{"1.5 with knobs", priceDynamo15(k), 3*(2+4-1/1.5-0.75-0.25) + 7 + 1.5, 3*4 + 4},
	} {
		d, err := router.ByCost(tc.name, tc.price).Pick(r, router.View{Candidates: c})
		if err != nil {
			t.Fatal(err)
		}
		cost := map[cluster.InstanceID]float64{}
		for _, c := range d.Candidates {
			cost[c.ID] = c.Cost
		}
		if a, b := cost[1], cost[2]; a-tc.a > 1e-9 || tc.a-a > 1e-9 || b != tc.b {
			t.Errorf("%s: costs %v and %v, want %v and %v", tc.name, a, b, tc.a, tc.b)
		}
	}
}
