package cluster

import "testing"

func TestRolloutLimits(t *testing.T) {
	for _, tc := range []struct {
		rollout            Rollout
		workers            int
		surge, unavailable int
	}{
		{Rollout{}, 1000, 250, 250},
		{Rollout{}, 7, 1, 1},
		{Rollout{}, 0, 1, 1},
		{Rollout{MaxSurge: "0", MaxUnavailable: "3"}, 1000, 0, 3},
		{Rollout{MaxSurge: "10%", MaxUnavailable: "100%"}, 128, 12, 128},
		{Rollout{MaxSurge: "1%"}, 128, 1, 32},
		{Rollout{MaxSurge: "nonsense", MaxUnavailable: "-1"}, 128, 32, 32},
	} {
		if s, u := tc.rollout.Limits(tc.workers); s != tc.surge || u != tc.unavailable {
			t.Errorf("%+v of %d: %d and %d, want %d and %d", tc.rollout, tc.workers, s, u, tc.surge, tc.unavailable)
		}
	}
	for text, good := range map[string]bool{"": true, "0": true, "12": true, "1%": true, "100%": true, "0%": false, "101%": false, "-1": false, "%": false, "half": false, "1.5": false, " 3": false, "9999999999": false} {
		if err := CheckRollout(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := (Rollout{MaxSurge: "2"}).Over(Rollout{"3", "4"}); got != (Rollout{"2", "4"}) {
		t.Errorf("over the settings: %+v", got)
	}
}
