package kvevents

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/external/inferencesimtest"
	"github.com/dynctl/dynctl/internal/patience"
)

// post sends a request to the simulator.
func post(t *testing.T, url string, body, into any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(answer, into) != nil {
		t.Fatalf("%s: %s: %s, %v", url, resp.Status, answer, err)
	}
}

// A publisher that others wrote connects to a follower. Prompts are found by the hashes that
// the router computes, until the server has no more room for them.
func TestSimulator(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	for name, encoding := range map[string][]string{"arrays": nil, "maps": {"--use-vllm-map-event-format"}} {
		for _, size := range []int{16, 64} {
			t.Run(name, func(t *testing.T) {
				cfg, sink := config(t, nil), newIndex(t)
				cfg.Sink, sink.adapters = sink, []string{"tuned"}
				cfg.Endpoint, cfg.Topic, cfg.BlockSize = "tcp://*:0", "kv@", size
				f := start(t, cfg, nil)
				_, port, _ := strings.Cut(f.Addrs()[0].String(), "]:")
				s := inferencesimtest.Start(t, append(encoding, "--enable-kvcache", "--block-size", "16", "--kv-cache-size", "64",
					"--lora-modules", `{"name":"tuned"}`, "--event-batch-size", "1", "--zmq-endpoint", "tcp://127.0.0.1:"+port)...)
				holds(t, f, 0, func(n Figures) bool { return n.Publishers == 1 })
				model := inferencesimtest.Model
				ask := func(prompt string) (hashes []uint64) {
					var tokenized struct {
						Tokens []uint32 `json:"tokens"`
					}
					post(t, s.URL+"/tokenize", map[string]any{"model": inferencesimtest.Model, "prompt": prompt}, &tokenized)
					post(t, s.URL+"/v1/completions", map[string]any{"model": model, "prompt": prompt, "max_tokens": 1}, &struct{}{})
					c := blockhash.Chain{BlockSize: size, Seed: seed}
					if model != inferencesimtest.Model {
						c.Seed = blockhash.AdapterSeed(seed, model)
					}
					c.Extend(tokenized.Tokens)
					return c.Seq
				}
				prompt := strings.Repeat("the quick brown fox jumps over the lazy dog ", 20)
				first := ask(prompt)
				holds(t, f, len(first), nil)
				second := ask(prompt + strings.Repeat("and then it sleeps for a while ", 20))
				holds(t, f, len(second), nil)
				got, err := f.Resident(t.Context(), func() {})
				if err != nil || len(first) < 2 || !slices.Equal(got, second) || !slices.Equal(second[:len(first)], first) {
					t.Fatalf("resident are %x, want %x, which begins with %x, %v", got, second, first, err)
				}
				model = "tuned" // the same prompt, and other blocks
				tuned := ask(prompt)
				holds(t, f, len(second)+len(tuned), nil)
				if got, err = f.Resident(t.Context(), func() {}); err != nil || !slices.Contains(got, tuned[0]) || !slices.Contains(got, first[0]) {
					t.Errorf("resident are %x, want %x and %x, %v", got, tuned, first, err)
				}
				model = inferencesimtest.Model
				for i := range 8 { // 64 blocks of 16 tokens are all that fits
					ask(strings.Repeat(string(rune('a'+i))+" b c d ", 60))
				}
				patience.Until(t, "the first prompt has left", func() bool {
					n, hashes := f.Figures(), []uint64(nil)
					if hashes, err = f.Resident(t.Context(), func() {}); err != nil {
						t.Fatal(err)
					}
					return n.Events > 64 && n.Blocks <= 64*16/size && !slices.Contains(hashes, first[0])
				})
				n := f.Figures()
				if n.Gaps+n.Restarts+n.Unknown+n.Undecodable+n.Ignored+n.Orphans+n.Forgotten > 0 {
					t.Errorf("%+v", n)
				}
				s.Kill()
				holds(t, f, 0, func(n Figures) bool { return n.Publishers == 0 })
			})
		}
	}
}
