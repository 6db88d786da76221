package engine

import (
	"testing"
	"time"
)

// A step counts as mixed when one sequence decodes in it and one token of a prompt is
// computed, not with less.
func TestMixedStepsAreCounted(t *testing.T) {
	var e Engine
	for _, tc := range []struct {
		decodes, prefill int
		steps, tokens    uint64
	}{
		{0, 0, 0, 0}, {0, 9, 0, 0}, {9, 0, 0, 0}, {1, 1, 1, 1}, {2, 9, 2, 10},
	} {
		e.report(StepReport{Decodes: tc.decodes, PrefillTokens: tc.prefill, Predicted: 3, Busy: 5, Wall: 6})
		if c := e.count; c.MixedStepsTotal != tc.steps || c.MixedTokensTotal != tc.tokens {
			t.Errorf("%d decode, %d tokens of prompts: %d steps and %d tokens by now, want %d and %d",
				tc.decodes, tc.prefill, c.MixedStepsTotal, c.MixedTokensTotal, tc.steps, tc.tokens)
		}
	}
	e.report(StepReport{Predicted: 5, Busy: 3, Wall: 3})
	e.report(StepReport{Busy: 7, Wall: 7}) // the first step of all has no prediction
	if c := e.count; c.StepNanosTotal != 5*5+3+7 || c.StepWaitNanosTotal != 5 || c.StepMissNanosTotal != 6*uint64(2*time.Nanosecond) {
		t.Errorf("%d ns of steps, %d waited, %d missed", c.StepNanosTotal, c.StepWaitNanosTotal, c.StepMissNanosTotal)
	}
}

// The time between two steps counts where there was work meanwhile, and not before the first
// step, after a pause, or after a step that failed.
func TestGapsBetweenSteps(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	var e Engine
	b := steady{busy: 4 * time.Millisecond}
	step := func(from, to int) {
		e.pace.begin(at(from))
		e.report(e.pace.end(at(to), b, &stepWork{decodes: 1, decodeContext: 10}))
	}
	step(100, 105)
	if e.count.StepGapNanosTotal != 0 {
		t.Errorf("%d ns before the first step", e.count.StepGapNanosTotal)
	}
	step(107, 112)
	step(113, 118)
	e.pace.pause()
	step(200, 205)
	if gap := time.Duration(e.count.StepGapNanosTotal); gap != 3*time.Millisecond {
		t.Errorf("gaps of %s, want 3 ms", gap)
	}
	if busy, wait := time.Duration(e.count.StepNanosTotal), time.Duration(e.count.StepWaitNanosTotal); busy != 16*time.Millisecond || wait != 4*time.Millisecond {
		t.Errorf("%s busy, %s waited", busy, wait)
	}
}

// steady is a backend whose steps compute for so long.
type steady struct {
	Backend
	busy time.Duration
}

func (s steady) Busy() time.Duration { return s.busy }

// The work of steps adds up, each of its features on its own.
func TestWorkOfStepsAddsUp(t *testing.T) {
	var e Engine
	for range 3 {
		e.report(StepReport{Decodes: 2, DecodeContext: 30, PrefillTokens: 400, ChunkContext: 5000, Busy: 1, Wall: 1})
	}
	if c := e.count; c.StepDecodesTotal != 6 || c.StepDecodeContextTotal != 90 || c.StepTokensTotal != 1200 || c.StepChunkContextTotal != 15000 {
		t.Errorf("%+v", c)
	}
}

// A prompt passes a longer one when it lacks no more than the limit, the one that lacks
// least first; one token left is decoding.
func TestShortPrompt(t *testing.T) {
	lacks := func(tenant string, n int) *sequence {
		return &sequence{tenant: tenant, tokens: make([]uint32, n+3), computed: 3}
	}
	e := Engine{running: []*sequence{lacks("a", 9), lacks("a", 5), lacks("a", 4), lacks("a", 1), lacks("b", 2)}}
	for limit, want := range map[int]int{3: 0, 4: 4, 5: 4, 100: 4} {
		got := 0
		if s := e.shortPrompt("a", limit); s != nil {
			got = s.pending()
		}
		if got != want {
			t.Errorf("up to %d: one that lacks %d, want %d", limit, got, want)
		}
	}
	e.running[2].chunkStep = e.count.StepsTotal + 1 // it has its chunk
	if s := e.shortPrompt("a", 5); s != e.running[1] {
		t.Error("not the next one")
	}
	if s := e.shortPrompt("a", 4); s != nil {
		t.Errorf("one that lacks %d", s.pending())
	}
}
