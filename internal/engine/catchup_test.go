package engine

import (
	"fmt"
	"slices"
	"testing"
)

// Prompts that come at once are computed once, as far as they are equal.
func TestEqualPromptsAreComputedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		batch  int      // tokens of a step
		shared int      // tokens of each prompt, of 160
		tenant []string // of the prompts
		cached int      // tokens of each prompt but one
	}{
		"whole blocks":      {64, 160, []string{"a", "a", "a", "a"}, 144}, // the last block has the last token
		"uneven chunks":     {23, 160, []string{"a", "a", "a"}, 144},
		"less than a block": {9, 160, []string{"a", "a"}, 144},
		"two clients":       {64, 160, []string{"a", "b", "b"}, 144},
		"clients in turns":  {70, 160, []string{"a", "b"}, 132}, // one begins a block that the other ends
		"common beginning":  {64, 90, []string{"a", "a", "a"}, 80},
		"nothing":           {64, 0, []string{"a", "a"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := drive(t, Config{NumBlocks: 64, MaxBatchTokens: tc.batch})
			var all []*sequence
			for i, tenant := range tc.tenant {
				s := d.send(tenant, 160, 3, 1)
				for k := range s.tokens[tc.shared:] {
					s.tokens[tc.shared+k] = uint32(2 + i)
				}
				all = append(all, s)
			}
			d.steps(1)
			if n := len(d.running); n != len(all) {
				t.Fatalf("%d of %d prompts are admitted at once", n, len(all))
			}
			told := 0 // to clients, of what was cached
			for range 100 {
				if _, err := d.step(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, v := range d.outbox {
					if v.out.First != nil {
						told += v.out.First.Cached
					}
				}
				d.outbox = d.outbox[:0]
			}
			cached := tc.cached * (len(all) - 1)
			if c := d.count; int(c.CachedTokensTotal) != cached || int(c.ComputedTotal) != 162*len(all)-cached {
				t.Errorf("%d tokens are computed and %d cached, want %d and %d", c.ComputedTotal, c.CachedTokensTotal, 162*len(all)-cached, cached)
			}
			kept := 0 // in lists of sequences
			for _, s := range all {
				kept += s.cached
			}
			if told != cached || kept != cached {
				t.Errorf("%d cached tokens are told, %d are listed, want %d", told, kept, cached)
			}
			if err := d.pool.CheckIdle(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A short prompt that waits for an equal one does not keep others from passing a long one.
func TestWaitingShortPromptLetsOthersPass(t *testing.T) {
	d := drive(t, Config{NumBlocks: 512, MaxBatchTokens: 128})
	d.send("a", 4000, 1, 1)
	d.send("a", 40, 1, 2)
	d.send("a", 40, 1, 2)
	d.send("a", 44, 1, 3)
	d.steps(1)
	if n := d.b.tokens; n[1] != 64 || n[2] != 40 || n[3] != 24 {
		t.Errorf("tokens of prompts in the first step: %v", n)
	}
}

// Who was given a block table may read it while the prompt gets other blocks.
func TestTablesOfPromptsDoNotChange(t *testing.T) {
	d := drive(t, Config{NumBlocks: 64, MaxBatchTokens: 48})
	type call struct {
		computed    int
		table, then []int32
	}
	var calls []call
	for i := range 2 {
		s := &sequence{id: fmt.Sprint(i), tokens: make([]uint32, 160), prompt: 160, given: 160, prefill: &prefillOnly{done: make(chan prefillResult, 1)}}
		s.chain.BlockSize = 16
		if i == 1 {
			s.prefill.progress = func(computed int, table []int32) {
				calls = append(calls, call{computed, table, slices.Clone(table)})
			}
		}
		if err := d.accept(s); err != nil {
			t.Fatal(err)
		}
	}
	d.steps(10)
	last := calls[len(calls)-1]
	if last.computed != 160 || slices.Equal(last.table, calls[0].then) {
		t.Fatalf("%d tokens are computed, in the first table %t", last.computed, slices.Equal(last.table, calls[0].then))
	}
	for _, c := range calls {
		if !slices.Equal(c.table, c.then) || !slices.Equal(c.table[:c.computed/16], last.table[:c.computed/16]) {
			t.Errorf("with %d tokens the table was %v and became %v, in the end %v", c.computed, c.then, c.table, last.table)
		}
	}
}
