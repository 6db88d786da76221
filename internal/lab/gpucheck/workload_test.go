package gpucheck

import "testing"

// The sums are those that have been published with figures for this workload.
func TestWorkload(t *testing.T) {
	all, err := workload()
	if err != nil {
		t.Fatal(err)
	}
	var sum wanted
	for _, w := range all {
		if w.prompt < 100 || w.prompt > 1024 || w.answer < 100 || w.answer > 1024 {
			t.Errorf("%+v is out of range", w)
		}
		sum.prompt += w.prompt
		sum.answer += w.answer
	}
	if len(all) != 256 || sum != (wanted{142827, 133966}) {
		t.Errorf("%d requests with %+v", len(all), sum)
	}
}
