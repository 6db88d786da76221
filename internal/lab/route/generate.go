package route

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// generators make the workloads that are no traces. At speed 1 most bring about 30,000
// prompt tokens a second.
var generators = map[string]func(*random) []Request{
	"agents":    agents,
	"chats":     chats,
	"documents": documents,
	"system":    systemPrompts,
	"tenants":   tenants,
	"unique":    unique,
}

// Generated lists the names of the generated workloads.
func Generated() []string { return slices.Sorted(maps.Keys(generators)) }

// Generate makes a workload; the same seed makes the same.
func Generate(name string, seed uint64) (Workload, error) {
	generate := generators[name]
	if generate == nil {
		return Workload{}, fmt.Errorf("no workload %q (known: %s)", name, strings.Join(Generated(), ", "))
	}
	requests := generate(&random{Rand: rand.New(rand.NewPCG(seed, 0))})
	slices.SortStableFunc(requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	number(requests)
	return Workload{name, requests}, nil
}

type random struct {
	*rand.Rand
	block uint64
}

// blocks returns the ids of n new blocks.
func (r *random) blocks(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		r.block++
		out[i] = r.block
	}
	return out
}

// after returns a random pause with that mean.
func (r *random) after(mean time.Duration) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(mean))
}

func (r *random) between(least, most int) int { return least + r.IntN(most-least+1) }

// request makes one whose prompt ends somewhere in its last block.
func (r *random) request(at time.Duration, blocks []uint64, output int) Request {
	return Request{At: at, Tokens: len(blocks)*BlockSize - r.IntN(BlockSize), Output: output, blocks: slices.Clone(blocks)}
}

// agents are sessions with a shared system prompt of one of four kinds, whose history
// grows with each of 5 to 25 calls, with pauses of tools in between.
func agents(r *random) (out []Request) {
	var systems [4][]uint64
	for i := range systems {
		systems[i] = r.blocks(r.between(8, 16))
	}
	start := time.Duration(0)
	for range 300 {
		start += r.after(5 * time.Second)
		history, at := slices.Clone(systems[r.IntN(4)]), start
		for range r.between(5, 25) {
			history = append(history, r.blocks(r.between(1, 5))...)
			out = append(out, r.request(at, history, r.between(30, 200)))
			at += r.after(8*time.Second) + time.Second
		}
	}
	return out
}

// chats begin with one of six short system prompts. Each of 1 to 12 turns adds a block with
// the last answer and a question, and one in ten a text besides.
func chats(r *random) (out []Request) {
	var systems [6][]uint64
	for i := range systems {
		systems[i] = r.blocks(r.between(2, 8))
	}
	start := time.Duration(0)
	for range 1500 {
		start += r.after(600 * time.Millisecond)
		history, at := slices.Clone(systems[r.IntN(6)]), start
		for range r.between(1, 12) {
			added := 1
			if r.IntN(10) == 0 {
				added = r.between(4, 24)
			}
			history = append(history, r.blocks(added)...)
			out = append(out, r.request(at, history, r.between(50, 400)))
			at += r.after(15*time.Second) + 2*time.Second
		}
	}
	return out
}

// systemPrompts are short questions behind one of 40 long system prompts, some of which
// are much more common than others.
func systemPrompts(r *random) (out []Request) {
	var prompts [][]uint64
	for range 40 {
		prompts = append(prompts, r.blocks(r.between(10, 40)))
	}
	zipf := rand.NewZipf(r.Rand, 1.1, 1, uint64(len(prompts)-1))
	at := time.Duration(0)
	for range 6000 {
		at += r.after(400 * time.Millisecond)
		out = append(out, r.request(at, append(slices.Clone(prompts[zipf.Uint64()]), r.blocks(r.between(1, 3))...), r.between(50, 300)))
	}
	return out
}

// tenants mix chats that grow, shared prompts, bursts of equal prompts and unique ones.
func tenants(r *random) []Request {
	out := append(agents(r), systemPrompts(r)[:2500]...)
	at := time.Duration(0)
	for range 60 {
		at += r.after(15 * time.Second)
		prompt := r.blocks(r.between(10, 30))
		for range r.between(2, 16) {
			out = append(out, r.request(at+r.after(100*time.Millisecond), prompt, r.between(20, 100)))
		}
	}
	return append(out, unique(r)[:500]...)
}

// documents are questions about long documents, three to eight about each, one after the
// other.
func documents(r *random) (out []Request) {
	start := time.Duration(0)
	for range 400 {
		start += r.after(5 * time.Second)
		document, at := r.blocks(r.between(40, 160)), start
		for range r.between(3, 8) {
			out = append(out, r.request(at, append(slices.Clone(document), r.blocks(1)...), r.between(50, 400)))
			at += r.after(20 * time.Second)
		}
	}
	return out
}

// unique prompts share nothing.
func unique(r *random) (out []Request) {
	at := time.Duration(0)
	for range 4000 {
		at += r.after(400 * time.Millisecond)
		out = append(out, r.request(at, r.blocks(r.between(2, 40)), r.between(50, 400)))
	}
	return out
}
