package profiler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/profile"
)

func TestPlan(t *testing.T) {
	l := profile.Limits{KVBlocks: 128, BlockSize: 16, MaxSeqs: 6, MaxBatchTokens: 256, MaxContext: 1024}
	want := "[a prompt of 32 tokens a prompt of 984 tokens 1 at a time at 128 tokens 6 at a time at 128 tokens 1 at a time at 953 tokens " +
		"a prompt of 128 tokens 2 at a time at 128 tokens 1 at a time at 512 tokens 2 at a time at 512 tokens 3 at a time at 512 tokens " +
		"a prompt of 64 tokens a prompt of 256 tokens 4 at a time at 128 tokens a prompt of 512 tokens]"
	if got := fmt.Sprint(Plan(l, 5)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	l.MaxContext = 0
	if got := Plan(l, 5); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

// Whatever the limits are, every point keeps them, none is there twice, and prompts have something
// beside the template of a chat.
func TestPlanKeepsTheLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		l := profile.Limits{KVBlocks: 1 + r.IntN(1<<r.IntN(16)), BlockSize: 1 << r.IntN(8), MaxSeqs: 1 + r.IntN(1<<r.IntN(11)), MaxBatchTokens: 512, MaxContext: 1 + r.IntN(1<<r.IntN(18))}
		overhead := r.IntN(100)
		plan := Plan(l, overhead)
		if l.MaxContext > 1000 && l.KVTokens() > 2000 && len(plan) < 4 {
			t.Fatalf("%+v: %v", l, plan)
		}
		for i, p := range plan {
			last := p.Tokens + slack(p.Tokens) // of what the words turn out to be
			if p.Kind == Decode {
				last += window / 2
			}
			if p.Tokens < min(shortest, 2*overhead) || last > l.MaxContext+window || p.Streams < 1 || p.Streams > l.MaxSeqs || p.Streams*p.Tokens > l.KVTokens() || slices.Contains(plan[:i], p) {
				t.Fatalf("%+v, overhead %d: %s of %v", l, overhead, p, plan)
			}
		}
	}
}

// Values between the ends come by halves.
func TestLevels(t *testing.T) {
	for n, want := range map[int][]int{1: {0}, 2: {0, 0}, 3: {0, 1, 0}, 5: {0, 2, 1, 2, 0}, 8: {0, 2, 3, 1, 3, 2, 3, 0}} {
		for i, l := range want {
			if got := level(i, n); got != l {
				t.Errorf("%d of %d: %d, want %d", i, n, got, l)
			}
		}
	}
	for name, tc := range map[string]struct{ got, want []int }{
		"doubling":      {grid(32, 512, 2), []int{32, 64, 128, 256, 512}},
		"near the last": {grid(32, 600, 2), []int{32, 64, 128, 256, 600}},
		"one":           {grid(1, 1, 2), []int{1}},
		"none":          {grid(1, 0, 2), nil},
		"less":          {grid(32, 31, 2), nil},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: %v, want %v", name, tc.got, tc.want)
		}
	}
}

// Measured is where all streams have tokens, by the tokens that the server counts.
func TestOverlap(t *testing.T) {
	at := func(from, every, n int) (times []time.Duration) {
		for i := range n {
			times = append(times, time.Duration(from+i*every)*time.Millisecond)
		}
		return times
	}
	counted := func(by float64, n int) (out []float64) {
		for i := range n {
			out = append(out, by*float64(i+1))
		}
		return out
	}
	stream1 := stream{times: at(0, 10, 50), tokens: counted(1, 50), usage: openai.Usage{Prompt: 100}}
	late := stream{times: at(100, 10, 50), tokens: counted(1, 50), usage: openai.Usage{Prompt: 200}}
	pairs := stream{times: at(0, 20, 25), tokens: counted(2, 25), usage: openai.Usage{Prompt: 100}}
	for name, tc := range map[string]struct {
		all     []stream
		want    Measurement
		missing int
	}{
		"one":      {[]stream{stream1}, Measurement{Seconds: 0.01, Counted: 49, Context: 100 + 25}, 0}, // 1 to 50: tokens 2 to 50 attend to 1 to 49 before them
		"two":      {[]stream{stream1, late}, Measurement{Seconds: 0.01, Counted: 78, Context: (39*(100+(11+49)/2.) + 39*(200+20)) / 78}, 0},
		"in pairs": {[]stream{pairs}, Measurement{Seconds: 0.01, Counted: 48, Context: 100 + (2+49)/2.}, 0},
		"too late": {[]stream{stream1, {times: at(470, 10, 50), tokens: counted(1, 50)}}, Measurement{}, window - 2},
		"never":    {[]stream{stream1, {times: at(900, 10, 50), tokens: counted(1, 50)}}, Measurement{}, window},
		"short":    {[]stream{{times: at(0, 10, 21), tokens: counted(1, 21), usage: openai.Usage{Prompt: 10}}}, Measurement{Seconds: 0.01, Counted: 20, Context: 10 + 10.5}, window - 20},
		"no text":  {[]stream{stream1, {}}, Measurement{}, window},
		"at once":  {[]stream{{times: at(5, 0, 40), tokens: counted(1, 40)}}, Measurement{}, window},
	} {
		got, missing := overlap(Point{}, tc.all)
		if missing != tc.missing || got.Counted != tc.want.Counted || fmt.Sprintf("%.9f %.9f", got.Seconds, got.Context) != fmt.Sprintf("%.9f %.9f", tc.want.Seconds, tc.want.Context) {
			t.Errorf("%s: %+v, %d missing, want %+v, %d", name, got, missing, tc.want, tc.missing)
		}
	}
}
