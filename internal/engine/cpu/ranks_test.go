package cpu

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// Any number of ranks gives the bits of one, whatever KV is kept as, and each rank has
// the very bytes of its heads.
func TestRanks(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "qwen3", Heads: 8, KVHeads: 4, HeadDim: 24, Seed: 5})
	tokens := prompt(1, 300, m.TokenLimit())
	const blocks = 16
	for _, kv := range []string{KVF32, KVBF16, KVInt8} {
		t.Run(kv, func(t *testing.T) {
			type run struct {
				rig
				logits [][]float32
			}
			var runs []run
			for _, n := range []int{0, 1, 2, 4} {
				r := run{rig: newRig(t, m, 2, blocks, Options{BlockSize: 20, KVDType: kv, TensorParallel: n})}
				if got := r.Info(); got.TensorParallel != max(n, 1) || len(r.memory) != max(n, 1) || got.KV.KVHeads != 4 {
					t.Fatalf("%d ranks: %d pieces of memory for %+v", n, len(r.memory), got)
				}
				for _, cut := range [][2]int{{0, 290}, {290, 291}, {291, 300}} {
					r.logits = append(r.logits, r.newLogits())
					r.step(t, engine.BatchSeq{Tokens: tokens[cut[0]:cut[1]], Start: cut[0], Blocks: table(0, blocks), Logits: r.logits[len(r.logits)-1]})
				}
				runs = append(runs, r)
			}
			one := runs[0]
			whole := int(one.info.KV.BlockBytes())
			for _, r := range runs[1:] {
				n := len(r.memory)
				for i := range r.logits {
					sameBits(t, fmt.Sprintf("%d ranks, step %d", n, i), r.logits[i], one.logits[i])
				}
				for rank, mem := range r.memory {
					part := whole / n
					if len(mem.Bytes()) != blocks*part {
						t.Fatalf("rank %d of %d has %d bytes, want %d", rank, n, len(mem.Bytes()), blocks*part)
					}
					for b := range blocks {
						want := one.memory[0].Bytes()[b*whole+rank*part:][:part]
						if got := mem.Bytes()[b*part:][:part]; !bytes.Equal(got, want) {
							t.Fatalf("block %d of rank %d of %d is not that part of the whole block", b, rank, n)
						}
					}
				}
			}
		})
	}
}

// Every family computes on as many ranks as it has KV heads what it computes on one.
func TestRanksOfFamilies(t *testing.T) {
	for name, spec := range modeltest.Families() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := modeltest.Open(t, spec)
			tokens := prompt(7, 61, m.TokenLimit())
			var all [2][][]float32
			for i, n := range []int{1, m.Config().KVHeads} {
				r := newRig(t, m, 2, 4, Options{BlockSize: 16, KVDType: KVAuto, TensorParallel: n})
				for at := range 2 { // a prompt, then a token
					logits := r.newLogits()
					r.step(t, engine.BatchSeq{Tokens: tokens[60*at : 60+at], Start: 60 * at, Blocks: table(0, 4), Logits: logits})
					all[i] = append(all[i], logits)
				}
			}
			for at := range all[0] {
				sameBits(t, fmt.Sprintf("%d ranks, step %d", m.Config().KVHeads, at), all[1][at], all[0][at])
			}
		})
	}
}

// TestHeadsOfAnotherRank shows that results depend on which rank has which heads: blocks
// that go from one rank to two give the same bits, and those of two ranks in the other
// order do not.
func TestHeadsOfAnotherRank(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "llama", KVHeads: 4})
	tokens := prompt(1, 33, m.TokenLimit())
	one := newRig(t, m, 1, 3, Options{BlockSize: 16})
	one.step(t, engine.BatchSeq{Tokens: tokens[:32], Blocks: table(0, 3)})
	last := engine.BatchSeq{Tokens: tokens[32:], Start: 32, Blocks: table(0, 3), Logits: one.newLogits()}
	one.step(t, last)
	want := last.Logits
	whole := int(one.info.KV.BlockBytes())
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		two := newRig(t, m, 1, 3, Options{BlockSize: 16, TensorParallel: 2})
		for b := range 2 {
			for rank, mem := range two.memory {
				copy(mem.Bytes()[b*whole/2:][:whole/2], one.memory[0].Bytes()[b*whole+order[rank]*whole/2:])
			}
		}
		last.Logits = two.newLogits()
		two.step(t, last)
		if order[0] == 0 {
			sameBits(t, "two ranks", last.Logits, want)
		} else if slices.Equal(last.Logits, want) {
			t.Error("exchanged heads change nothing")
		}
	}
}

func TestRanksRefused(t *testing.T) {
	m := modeltest.Open(t, modeltest.Spec{Family: "llama", Heads: 6, KVHeads: 2, HeadDim: 16})
	d := NewDevice("cpu:0", 1)
	defer d.Close()
	w, err := d.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, n := range []int{-1, 3, 4, 6} {
		_, err := w.NewBackend(Options{BlockSize: 16, TensorParallel: n})
		if want := fmt.Sprintf("%d ranks cannot share 6 query heads and 2 KV heads evenly, possible are 1, 2", n); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("err = %v, want %q", err, want)
		}
	}
}
