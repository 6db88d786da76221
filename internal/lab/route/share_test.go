package route

import (
	"testing"
	"time"
)

// Frontends that hear of each other's requests route as one frontend does; frontends that
// do not make prompts wait longer and be computed again.
func TestSeveralFrontends(t *testing.T) {
	w, err := Generate("documents", 1)
	if err != nil {
		t.Fatal(err)
	}
	play := func(frontends int, delay time.Duration) Result {
		r, err := Play(Config{Requests: w.Requests, Policy: Own().Settings[0], Workers: 8, Blocks: 1000, Speed: 4, Timing: H100, Frontends: frontends, SyncDelay: delay})
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests != len(w.Requests) || r.Blocks == 0 {
			t.Fatalf("%+v", r)
		}
		return r
	}
	one := play(1, 0)
	for _, n := range []int{2, 4} {
		synced, alone := play(n, 5*time.Millisecond), play(n, 0)
		if synced.Reuse() < one.Reuse()-0.02 || synced.Balance > one.Balance+0.05 || float64(synced.P90) > 1.1*float64(one.P90) {
			t.Errorf("%d frontends: reuse %.3f, max/mean %.2f, p90 %s; one: %.3f, %.2f, %s", n, synced.Reuse(), synced.Balance, synced.P90, one.Reuse(), one.Balance, one.P90)
		}
		if float64(alone.P90) < 1.1*float64(synced.P90) || alone.Reuse() > synced.Reuse() {
			t.Errorf("%d frontends that do not hear of each other: reuse %.3f, p90 %s; with: %.3f, %s", n, alone.Reuse(), alone.P90, synced.Reuse(), synced.P90)
		}
	}
}
