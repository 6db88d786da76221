package frontend

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestRecentForgets(t *testing.T) {
	var r recent[cluster.KVAccuracy]
	begin := time.Unix(1_000_000_000, 0).Truncate(recentSlot)
	at := func(d time.Duration) cluster.KVAccuracy { return r.sum(begin.Add(d)) }
	one := cluster.KVAccuracy{Requests: 1, Predicted: 10, Found: 7, False: 3}
	r.add(begin, one)
	r.add(begin.Add(30*time.Second), one)
	for _, tt := range []struct {
		after time.Duration
		want  uint64
	}{{30 * time.Second, 2}, {cluster.KVRecent - 1, 2}, {cluster.KVRecent, 1}, {cluster.KVRecent + 29*time.Second, 1}, {cluster.KVRecent + 30*time.Second, 0}, {time.Hour, 0}} {
		if got := at(tt.after); got.Requests != tt.want || got.False != 3*tt.want || got.Predicted != 10*tt.want || got.Found != 7*tt.want {
			t.Errorf("after %s: %+v, want %d requests", tt.after, got, tt.want)
		}
	}
	r.add(begin.Add(cluster.KVRecent), one) // takes the slot of the first
	if got := at(cluster.KVRecent); got.Requests != 2 {
		t.Errorf("a slot is used again: %+v", got)
	}
}
