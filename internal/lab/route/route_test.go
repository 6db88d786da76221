package route

import (
	"bytes"
	"math"
	"os"
	"testing"
	"time"
)

func cut(t testing.TB) []Request {
	t.Helper()
	f, err := os.Open("testdata/conversation.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	r, err := ReadMooncake(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The counts of pooled caches are those that were published for the whole traces. The
// variable names the folder that has them.
func TestIdealOfTheTraces(t *testing.T) {
	dir := os.Getenv("MOONCAKE_TRACES")
	if dir == "" {
		t.Skip("MOONCAKE_TRACES is not set")
	}
	for _, tc := range []struct {
		file        string
		blocks      int
		lru, belady float64
	}{
		{"conversation_trace.jsonl", 8000, 0.178, 0.366}, {"conversation_trace.jsonl", 32000, 0.332, 0.366},
		{"synthetic_trace.jsonl", 8000, 0.372, 0.592}, {"synthetic_trace.jsonl", 32000, 0.628, 0.640},
	} {
		f, err := os.Open(dir + "/" + tc.file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ReadMooncake(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for i := range r { // what was published counts every block and no answers
			r[i] = whole(r[i].blocks...)
		}
		lru, belady := Ideal(r, tc.blocks)
		if math.Abs(lru-tc.lru) > 0.0006 || math.Abs(belady-tc.belady) > 0.0015 {
			t.Errorf("%s, %d blocks: LRU %.4f, Belady %.4f, want %.3f and %.3f", tc.file, tc.blocks, lru, belady, tc.lru, tc.belady)
		}
	}
}

// whole returns a request whose blocks are all full, and whose answer fills none.
func whole(hashes ...uint64) Request {
	return Request{Tokens: len(hashes)*BlockSize + 1, Hashes: hashes, chain: hashes}
}

func TestIdeal(t *testing.T) {
	r := []Request{whole(1, 2), whole(3, 4), whole(1, 2)}
	for _, tc := range []struct {
		blocks      int
		lru, belady float64
	}{{4, 2. / 6, 2. / 6}, {3, 0, 2. / 6}, {100, 2. / 6, 2. / 6}} {
		if lru, belady := Ideal(r, tc.blocks); lru != tc.lru || belady != tc.belady {
			t.Errorf("%d blocks: %v %v", tc.blocks, lru, belady)
		}
	}
}

// Every policy serves every request once, computes what it does not find, and does the
// same again.
func TestPlay(t *testing.T) {
	requests := cut(t)
	blocks, tokens := 0, 0
	for _, r := range requests {
		blocks, tokens = blocks+len(r.Hashes), tokens+r.Tokens
	}
	for _, k := range append([]Contender{Own()}, Opponents()...) {
		t.Run(k.Name, func(t *testing.T) {
			c := Config{Requests: requests, Policy: k.Settings[0], Workers: 4, Blocks: 1000, Speed: 2, Timing: H100}
			a, err := Play(c)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Play(c)
			a.Decision, b.Decision = 0, 0 // measured
			if err != nil || a != b {
				t.Errorf("%+v, then %+v %v", a, b, err)
			}
			// A block may be of a part of the prompt's end, so tokens are counted too high.
			if missing := tokens - a.Computed; a.Blocks != blocks || missing < 0 || missing > a.Reused*BlockSize || a.Reused > blocks {
				t.Errorf("%+v, want %d blocks and %d tokens", a, blocks, tokens)
			}
			if a.P50 <= 0 || a.P50 > a.P90 || a.P90 > a.P99 || a.Balance < 1 || a.Span < requests[len(requests)-1].At/2 {
				t.Errorf("%+v", a)
			}
		})
	}
}

// BenchmarkPlay replays the start of a trace.
func BenchmarkPlay(b *testing.B) {
	requests := cut(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Play(Config{Requests: requests, Policy: Own().Settings[0], Workers: 4, Blocks: 1000, Speed: 0.5, Timing: H100}); err != nil {
			b.Fatal(err)
		}
	}
}

// The product's policy reuses more than all that do not look at caches.
func TestOwnPolicyReuses(t *testing.T) {
	w, err := Generate("tenants", 1)
	if err != nil {
		t.Fatal(err)
	}
	play := func(k Contender) Result {
		r, err := Play(Config{Requests: w.Requests[:2000], Policy: k.Settings[0], Workers: 8, Blocks: 1000, Speed: 4, Timing: H100})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	own, blind := play(Own()), play(known("round-robin"))
	if lru, _ := Ideal(w.Requests[:2000], 8000); own.Reuse() < 0.9*lru || own.P90 >= blind.P90 {
		t.Errorf("own %+v of ideal %.2f, round-robin %+v", own, lru, blind)
	}
}

func TestGenerate(t *testing.T) {
	for _, name := range Generated() {
		a, err := Generate(name, 7)
		if err != nil {
			t.Fatal(err)
		}
		last := time.Duration(0)
		for _, r := range a.Requests {
			if r.At < last || r.Output < 1 || r.Tokens > len(r.blocks)*BlockSize || r.Tokens <= (len(r.blocks)-1)*BlockSize {
				t.Fatalf("%s: %+v after %s", name, r, last)
			}
			last = r.At
		}
	}
	if _, err := Generate("magic", 1); err == nil {
		t.Error("an unknown workload is generated")
	}
}

func TestPlanPrints(t *testing.T) {
	var out bytes.Buffer
	p := Plan{Workloads: []Workload{{"cut", cut(t)[:100]}}, Workers: []int{2}, Frontends: []int{1, 2}, Syncs: []time.Duration{0, time.Millisecond}, Blocks: []int{1000}, Speeds: []float64{1}, Policies: []string{"kv"}, Knee: true}
	if err := p.Run(&out); err != nil || !bytes.Contains(out.Bytes(), []byte("| kv | default | 1 |")) {
		t.Errorf("%v\n%s", err, out.String())
	}
	p.Policies = []string{"magic"}
	if p.Run(&out) == nil {
		t.Error("an unknown policy is played")
	}
}
