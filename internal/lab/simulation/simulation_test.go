package simulation

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/bench/arrival"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/simulate"
	"github.com/dynctl/dynctl/internal/topofile"
)

// example is the profile that comes with the program.
func example(t *testing.T) *profile.Profile {
	t.Helper()
	f, err := os.Open("../../../configs/profiles/llama-8b-h100.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func declared(t *testing.T, text string) (simulate.Config, []string) {
	t.Helper()
	file, err := topofile.Parse(topofile.Source{Name: "test.yaml"}, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, without, err := Declared(file, example(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, without
}

func TestDeclared(t *testing.T) {
	c, without := declared(t, `
model: {name: m, path: /m}
prefill: {workers: 2, engine: {max_num_batched_tokens: 4096}}
decode: 3
engine: {kv_blocks: 99, block_size: 32, max_num_seqs: 7, max_model_len: 3000, itl_target: 30ms}
disagg: {strategy: decode-first, conditional: slo, max_local_prefill_tokens: 5, max_prefill_queue_depth: 6, remote_prefill_timeout: 7s, overlap_kv_transfer: false, enforce: true}
router: {policy: random, active_decode_blocks_threshold: 0.5, active_prefill_tokens_threshold: 9, active_prefill_tokens_threshold_frac: 2.5, session_affinity: hard}
`)
	if !slices.Equal(without, []string{"router.session_affinity"}) {
		t.Errorf("without effect: %v", without)
	}
	if want := (profile.Limits{KVBlocks: 99, BlockSize: 32, MaxSeqs: 7, MaxBatchTokens: 8192, MaxContext: 3000, ITLTarget: 0.03}); c.Profile.Limits != want || c.PrefillProfile.Limits.MaxBatchTokens != 4096 {
		t.Errorf("%+v and %+v", c.Profile.Limits, c.PrefillProfile.Limits)
	}
	if c.Prefill != 2 || c.Decode != 3 || c.Strategy != protocol.StrategyDecodeFirst || c.Policy != "random" || !c.Sequential || c.RemoteTimeout != 7*time.Second {
		t.Errorf("%+v", c)
	}
	if d := c.Disagg; d.Conditional.Rule != cluster.ConditionalSLO || d.MaxLocalTokens != 5 || d.MaxQueueDepth != 6 || !d.Enforce {
		t.Errorf("%+v", d)
	}
	if b := c.Busy; b.KVShare != 0.5 || b.PrefillTokens != 9 || b.PrefillSteps != 2.5 {
		t.Errorf("%+v", b)
	}
	c, without = declared(t, "model: {name: m, path: /m}\ndecode: 1\n")
	if c.Strategy != protocol.StrategyDecodeFirst || c.Sequential || c.Disagg != simulate.DefaultDisagg() || c.Policy != "kv" || c.RemoteTimeout != simulate.DefaultRemoteTimeout || len(without) > 0 {
		t.Errorf("defaults: %+v, %v", c, without)
	}
	if example(t).Limits.KVBlocks == 99 {
		t.Error("the profile was changed")
	}
}

// The tables of Dynamo's profiler take the place of costs: a prompt takes what they say.
func TestWithTables(t *testing.T) {
	dir := t.TempDir()
	for name, file := range map[string]string{"selected_prefill_interpolation": "prefill.npz", "selected_decode_interpolation": "decode.npz"} {
		b, err := os.ReadFile("../../profile/testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := WithTables(example(t), dir); err == nil {
			t.Error("no error without all tables")
		}
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "raw_data.npz"), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p, err := WithTables(example(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	p.Overheads = profile.Overheads{}
	load := &simulate.Open{From: workload.Synthetic{Input: workload.Fixed(4000), Output: workload.Fixed(3), Turns: 1}, Schedule: arrival.New(arrival.Constant(1), false, 1), Count: 1}
	r, err := simulate.Run(t.Context(), simulate.Config{Profile: p, Decode: 1, Load: load})
	if err != nil {
		t.Fatal(err)
	}
	// 250.5 ms in the table, at 4000 tokens; the mean context of a chunk is a token more. An
	// answer of a context of 4000 tokens in a pool of 64000 is beyond the rows of the table: 10 ms.
	if math.Abs(r.TTFT.P50-250.5) > 0.1 || math.Abs(r.ITL.P50-10) > 0.05 {
		t.Errorf("TTFT %v ms, ITL %v ms", r.TTFT.P50, r.ITL.P50)
	}
}

func TestShowAndDraw(t *testing.T) {
	var all []Played
	for _, prefill := range []int{0, 1} {
		c := simulate.Config{
			Profile: example(t), Prefill: prefill, Decode: 2, Policy: "kv", TTFT: time.Second, ITL: 20 * time.Millisecond,
			Load: &simulate.Open{From: workload.Synthetic{Input: workload.Fixed(3000), Output: workload.Fixed(50), Turns: 1}, Schedule: arrival.New(arrival.Constant(5), true, 1), Count: 300},
		}
		c.Disagg = simulate.DefaultDisagg()
		c.Strategy = protocol.StrategyPrefillFirst
		r, err := simulate.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Played{[]string{"one.yaml", "two.yaml"}[prefill], c, r})
	}
	var out bytes.Buffer
	if err := Show(&out, "a load", all...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a load\none.yaml: 2 decode workers, policy kv\ntwo.yaml: 1 prefill and 2 decode workers, prefill-first (least-delay), policy kv\n",
		"| figure | one.yaml | two.yaml | change |\n|---|---:|---:|---:|\n| requests | 300 | 300 | - |\n",
		"| TTFT p95 |", " ms |", "| within the targets |", " % |", "| device-hours |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "refused") {
		t.Errorf("nothing was refused:\n%s", out.String())
	}
	columns := 0
	for line := range strings.Lines(out.String()) {
		if n := strings.Count(line, "|"); n > 0 && columns > 0 && n != columns {
			t.Errorf("%d columns in %q", n, line)
		} else if n > 0 {
			columns = n
		}
	}
	var svg bytes.Buffer
	if err := Draw(&svg, "a <title>", all[0].Result); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(&svg)
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.1234: "0.123", 12.345: "12.3", 1234.5: "1234", 3.14159: "3.14"} {
		if got := round(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for _, c := range []struct {
		from, to float64
		want     string
	}{{1, 1, "-"}, {0, 1, "new"}, {2, 1, "-50.0 %"}, {2, 3, "+50.0 %"}} {
		if got := change(c.from, c.to); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.from, c.to, got, c.want)
		}
	}
}
