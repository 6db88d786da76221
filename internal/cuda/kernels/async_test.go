package kernels_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// What the kernels for compute capability 9.0 must not do: each is one change of their
// source, and what the shim says of it.
var asyncMistakes = []struct{ what, from, to, want string }{
	{"nothing", "", "", ""},
	{"no fence", "wgmma_fence();", "", "without a fence"},
	{"no commit", "wgmma_commit();", "", "may still read"},
	{"sums are read early", "wgmma_finish(d);", "", "may still read"},
	{"a stage is given back early", "wgmma_wait<1>();", "wgmma_wait<2>();", "a copy overwrites"},
	{"a stage is not waited for", "barrier_wait(full + ring.stage * 8, ring.round);", "", "a product reads"},
	{"the other phase is waited for", "barrier_wait(full + ring.stage * 8, ring.round);", "barrier_wait(full + ring.stage * 8, ring.round ^ 1);", "a product reads"},
	{"an empty stage is not waited for", "barrier_wait(empty + ring.stage * 8, ring.round ^ 1);", "", "more arrivals"},
	{"a full stage is waited for", "barrier_wait(empty + ring.stage * 8, ring.round ^ 1);", "barrier_wait(empty + ring.stage * 8, ring.round);", "a barrier waits for 8 arrivals and 0 bytes"},
	{"fewer bytes are announced", "barrier_expect(barrier, STAGE_BYTES);", "barrier_expect(barrier, STAGE_BYTES - 128);", "more bytes have come"},
	{"more bytes are announced", "barrier_expect(barrier, STAGE_BYTES);", "barrier_expect(barrier, STAGE_BYTES + 16);", "16 bytes"},
	{"other rows are copied", "TK, from(n, i)", "TK, from(n, i) + 1", "should be"},
	{"fewer warps are waited for", "barrier_init(empty + s * 8, WM * WN * 4);", "barrier_init(empty + s * 8, WM * WN * 2);", "a copy overwrites"},
	{"barriers are not published", "barrier_publish();", "", "was not published"},
	{"barriers are not waited for", "	__syncthreads();", "", "a barrier"},
	{"stages are not aligned", "+ 1023) & ~1023u", "+ 15) & ~15u", "not aligned to 128"},
	{"a pattern begins elsewhere", "(shared_address(shared) + 1023) & ~1023u", "((shared_address(shared) + 1023) & ~1023u) + 128", "multiple of 1024"},
	{"the wrong sixteen values", "b + 2 * k", "b + 4 * k", "multiple of 1024"},
	{"all groups read the same rows", "at + own_m * ROW_BYTES", "at", "should be"},
	{"a row of the tile is left out", "m = (first + rest % size) * TM", "m = (first + rest % size) * TM + 1", "should be"},
	{"too many registers are kept", "COPYING = 40", "COPYING = 64", "more registers"},
}

// The shim tells of every mistake in the use of TMA, mbarriers and wgmma that it knows, in
// whatever order threads run: who passes there has made none of them.
func TestAsyncMistakesAreFound(t *testing.T) {
	header, err := os.ReadFile("src/gemm_sm90a.h")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("src/gemm_sm90a.cu")
	if err != nil {
		t.Fatal(err)
	}
	const kernel, include = "gemm_sm90a_128x64", "#include \"gemm_sm90a.h\"\n"
	// A ring of few stages goes round often.
	text := regexp.MustCompile(`(?m)^GEMM\(.*\n`).ReplaceAllString(string(source), "") + "GEMM(" + kernel + ", 2, 1, 64, 3)\n#undef GEMM\n"
	text = strings.Replace(text, include, regexp.MustCompile(`(?m)^#(pragma once|include).*\n`).ReplaceAllString(string(header), ""), 1)
	var units []shimUnit
	for i, m := range asyncMistakes {
		if strings.Count(text, m.from) < 1 {
			t.Fatalf("%s: the source has no %q", m.what, m.from)
		}
		units = append(units, shimUnit{fmt.Sprintf("mistake%d", i), strings.Replace(text, m.from, m.to, 1), []string{kernel}})
	}
	s, err := compileShim(units)
	if errors.Is(err, errCompile) {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	run := func(t *testing.T, d device) ([]kerneltest.Output, error) {
		l := newLab(d, "mistakes")
		const tokens, rows, in = 200, 136, 72 * 8
		o := kernels.MatMul{Out: l.Out("out", 2*tokens*rows, kerneltest.SumOf(in, false)), X: l.Values(tokens*in, 1), W: l.Values(rows*in, 1), Tokens: tokens, Rows: rows, In: in}
		l.must()
		err := d.queue().Tune(kernels.Tuning{Multiprocessors: 2, Tile: kernel}).GEMM(o)
		d.finish()
		return l.Outputs, err
	}
	want, err := run(t, newTwin(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range asyncMistakes {
		t.Run(m.what, func(t *testing.T) {
			function := s.functions[kernel]
			if i > 0 {
				function = s.functions[fmt.Sprintf("mistake%d/%s", i, kernel)]
			}
			for seed := range uint64(4) {
				d := &hostDevice{T: t, shim: &shim{s.launch, map[string]uint64{kernel: function}}, seed: seed + 1}
				t.Cleanup(d.close)
				got, err := run(t, d)
				if err == nil {
					err = got[0].Differs(want[0])
				}
				if (m.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), m.want) {
					t.Errorf("seed %d: %v, want %q", seed+1, err, m.want)
				}
			}
		})
	}
}
