package bench

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseTransfers(t *testing.T) {
	got, err := parseTransfers(strings.NewReader(`# HELP dynamo_component_kv_transfer_exposed_seconds Time
dynamo_component_kv_transfer_exposed_seconds_sum{way="queue",worker="worker-1"} 0.25
dynamo_component_kv_transfer_exposed_seconds_sum{way="pull",worker="worker-1"} 0.5
dynamo_component_kv_transfer_exposed_seconds_count{way="queue",worker="worker-1"} 3
dynamo_component_kv_transfer_exposed_seconds_bucket{way="queue",worker="worker-1",le="1"} 3
dynamo_component_kv_transfer_duration_seconds_sum{direction="in",transport="tcp",worker="worker-1"} 2
dynamo_component_kv_transfer_duration_seconds_sum{direction="out",transport="tcp",worker="worker-2"} 7
go_goroutines 12
`))
	if want := (kvTransfers{prompts: 3, seconds: 2, exposed: 0.75}); err != nil || got != want {
		t.Errorf("got %+v %v, want %+v", got, err, want)
	}
	if _, err := parseTransfers(strings.NewReader("dynamo_component_kv_transfer_exposed_seconds_sum{} much\n")); err == nil {
		t.Error("a value that is no number was taken")
	}
}

// Gaps count when they touch the span, in full, also those longer than it.
func TestArrivalGaps(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(seconds ...int) (out []time.Time) {
		for _, s := range seconds {
			out = append(out, t0.Add(time.Duration(s)*time.Second))
		}
		return out
	}
	a := newArrivals(2)
	a.at = [][]time.Time{at(1, 2, 5, 11, 12), at(3, 30)}
	got := a.gaps(t0.Add(4*time.Second), t0.Add(10*time.Second))
	if want := []time.Duration{3 * time.Second, 6 * time.Second, 27 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
