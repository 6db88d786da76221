package simulate

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/router"
)

// Steps of one device: when each begins, how long it takes, and when it ends.
func TestTurnsOfADevice(t *testing.T) {
	type step struct {
		name     string
		at, took float64 // in milliseconds
		chunks   bool
	}
	for _, tc := range []struct {
		name  string
		steps []step
		want  []string
	}{
		{"alone", []step{{"d", 3, 5, false}}, []string{"d 8"}},
		{"in order of arrival", []step{{"a", 0, 5, false}, {"b", 1, 5, false}, {"c", 2, 1, false}}, []string{"a 5", "b 10", "c 11"}},
		{"prompts in order of arrival", []step{{"p", 0, 5, true}, {"q", 1, 5, true}}, []string{"p 5", "q 10"}},
		{"a step that decodes interrupts a prompt, which goes on", []step{{"p", 0, 10, true}, {"q", 1, 4, true}, {"d", 2, 3, false}}, []string{"d 5", "p 13", "q 17"}},
		// d takes 4 ms while p waits. Then p keeps the device for 4 ms, though e wants it, and e comes.
		{"a prompt gets back what it waited for", []step{{"d", 0, 4, false}, {"p", 1, 10, true}, {"e", 4, 1, false}}, []string{"d 4", "e 9", "p 15"}},
		// Less than a millisecond is owed: the next step that decodes goes first.
		{"a prompt that is owed little waits", []step{{"p", 0, 10, true}, {"d", 2, 0.5, false}, {"e", 2.25, 3, false}}, []string{"d 2.5", "e 5.5", "p 13.5"}},
	} {
		s := &simulation{}
		d := s.newDevice()
		var got []string
		for _, x := range tc.steps {
			w := &worker{name: x.name, device: d, chunks: x.chunks}
			w.done = func() error {
				got = append(got, fmt.Sprintf("%s %v", w.name, s.now.Seconds()*1e3))
				return nil
			}
			s.at(profile.Seconds(x.at/1e3), func() error {
				d.compute(w, profile.Seconds(x.took/1e3))
				return nil
			})
		}
		for len(s.agenda.heap) > 0 {
			e := s.agenda.take()
			s.now = e.at
			if err := e.do(); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// Two workers of one device take turns; with a device for each, the second one does not wait. A prompt of
// 100 tokens takes 20 ms, the next token of an answer 11 ms.
func TestWorkersShareADevice(t *testing.T) {
	for _, tc := range []struct {
		devices int
		want    []float64 // TTFT and E2E of both requests, in milliseconds
	}{
		{0, []float64{20, 31, 20, 31}}, {2, []float64{20, 31, 20, 31}},
		// The second prompt begins at 20 ms and lets the first answer's token go first.
		{1, []float64{20, 31, 51, 62}},
	} {
		load := list{prompt(0, 1, 100, 2), prompt(0, 2, 100, 2)}
		r := play(t, Config{Profile: plain(), Decode: 2, SharedDevices: tc.devices, Load: &load, Records: true, Policy: router.RoundRobin})
		var got []float64
		for _, q := range r.Records {
			got = append(got, q.TTFT, q.E2E)
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%d devices: %v, want %v", tc.devices, got, tc.want)
		}
	}
}
