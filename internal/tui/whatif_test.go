package tui

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// w shows what a pending change would have done, and the question stands behind it.
func TestWhatIf(t *testing.T) {
	var asked []client.Action
	var err error
	sc := newScreen(t, labSnapshot(), 100, 30, Options{WhatIf: func(ctx context.Context, order client.Action) (string, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a simulation without an end")
		}
		asked = append(asked, order)
		return "figure     now\nTTFT p95   12 ms", err
	}})
	sc.press(":", "type:scale decode=6", "enter")
	sc.has("w what if")
	cmd := sc.press("w")
	sc.has("simulating scale", "Scale")
	sc.run(cmd)
	sc.has("what if: scale", "TTFT p95   12 ms", "nothing was changed")
	if want := []client.Action{{Kind: client.ActScale, Workers: cluster.Counts{cluster.RoleDecode: 6}}}; !reflect.DeepEqual(asked, want) {
		t.Errorf("%v, want %v", asked, want)
	}
	sc.press("esc")
	sc.has("[ Cancel ]")
	sc.press("esc")
	err = errors.New("too little was seen")
	sc.press(":", "type:set disagg.strategy=prefill-first", "enter")
	sc.run(sc.press("w"))
	sc.has("what if: too little was seen", "[ Cancel ]")
	if got := sc.src.actions(); len(asked) != 2 || got != nil {
		t.Errorf("asked %v, ordered %v", asked, got)
	}
	// A drain changes no topology, and without a cluster nobody knows.
	sc.press("esc", "d", "w")
	sc.has("the question first")
	sc = lab(t)
	sc.press(":", "type:scale decode=6", "enter", "w")
	sc.has("the question first")
}
