package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// script is what a server sends, and what comes of it: "1 2|3 =stop/2" are outputs and an end
// with two tokens counted.
func script(r *protocol.PreprocessedRequest, pieces ...Piece) (got string) {
	var outs []string
	t := NewTokens(r, func(o protocol.EngineOutput) error {
		if o.Finish != "" {
			got = fmt.Sprintf("%s =%s/%d", strings.Join(outs, "|"), o.Finish, o.Usage.CompletionTokens)
			return nil
		}
		outs = append(outs, strings.Trim(fmt.Sprint(o.TokenIDs), "[]")+o.Text)
		return nil
	})
	for _, p := range pieces {
		if err := t.Add(p); errors.Is(err, ErrEnough) {
			break
		} else if err != nil {
			return err.Error()
		}
	}
	if err := t.Close(); err != nil {
		return err.Error()
	}
	return got
}

// What a server overruns is cut, as a worker of ours would have.
func TestTokens(t *testing.T) {
	ids := func(reason string, ids ...uint32) Piece { return Piece{IDs: ids, Reason: reason} }
	for name, test := range map[string]struct {
		stop   protocol.StopConditions
		pieces []Piece
		want   string
	}{
		"as it comes":        {protocol.StopConditions{MaxTokens: 9}, []Piece{ids("", 1, 2), ids("stop", 3)}, "1 2|3 =stop/3"},
		"hidden end":         {protocol.StopConditions{MaxTokens: 9, StopTokenIDs: []uint32{7}}, []Piece{ids("", 1), ids("stop", 2, 7)}, "1|2 =stop/2"},
		"hidden end cut off": {protocol.StopConditions{MaxTokens: 9, StopTokenIDs: []uint32{7}}, []Piece{ids("", 1), ids("stop")}, "1 =stop/1"},
		"end overrun":        {protocol.StopConditions{MaxTokens: 9, StopTokenIDs: []uint32{7}}, []Piece{ids("", 1, 7, 3), ids("length", 4)}, "1 =stop/1"},
		"end, then more":     {protocol.StopConditions{MaxTokens: 9, StopTokenIDs: []uint32{7}}, []Piece{ids("", 1, 7), ids("", 4)}, "1 =stop/1"},
		"visible end":        {protocol.StopConditions{MaxTokens: 9, StopTokenIDsVisible: []uint32{7}}, []Piece{ids("", 1, 7, 3)}, "1 7 =stop/2"},
		"below the minimum":  {protocol.StopConditions{MaxTokens: 9, MinTokens: 2, StopTokenIDs: []uint32{7}}, []Piece{ids("", 7, 7, 7)}, "7 7 =stop/2"},
		"limit overrun":      {protocol.StopConditions{MaxTokens: 3}, []Piece{ids("", 1, 2), ids("", 3, 4)}, "1 2|3 =length/3"},
		"limit, then more":   {protocol.StopConditions{MaxTokens: 2}, []Piece{ids("", 1, 2), ids("", 3)}, "1 2 =length/2"},
		"end at the limit":   {protocol.StopConditions{MaxTokens: 2, StopTokenIDs: []uint32{7}}, []Piece{ids("stop", 1, 7)}, "1 =stop/1"},
		"nothing":            {protocol.StopConditions{MaxTokens: 2}, []Piece{ids("stop")}, " =stop/0"},
		"no end":             {protocol.StopConditions{MaxTokens: 2}, []Piece{ids("", 1)}, "unavailable: the stream ended before the answer"},
		"aborted":            {protocol.StopConditions{MaxTokens: 2}, []Piece{ids("abort", 1)}, `unavailable: the server ended the answer with "abort"`},
		"text":               {protocol.StopConditions{MaxTokens: 2}, []Piece{{Text: "a"}, {Text: "b", Reason: "length"}}, "a|b =length/0"},
	} {
		r := &protocol.PreprocessedRequest{TokenIDs: []uint32{1}, Stop: test.stop}
		if got := script(r, test.pieces...); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestTokensUsage(t *testing.T) {
	early, late := 6, 5
	for name, test := range map[string]struct {
		cached *int // with the first piece
		usage  *Usage
		want   protocol.Usage
		timing int // cached tokens of the first output; -1 for none
	}{
		"early":    {&early, usageOf(90, 80, &late), protocol.Usage{PromptTokens: 8, CompletionTokens: 2, CachedTokens: 6}, 6},
		"late":     {nil, usageOf(90, 80, &late), protocol.Usage{PromptTokens: 8, CompletionTokens: 2, CachedTokens: 5}, -1},
		"not told": {nil, usageOf(90, 80, nil), protocol.Usage{PromptTokens: 8, CompletionTokens: 2}, -1},
		"none":     {nil, nil, protocol.Usage{PromptTokens: 8, CompletionTokens: 2}, -1},
	} {
		r := &protocol.PreprocessedRequest{TokenIDs: make([]uint32, 10), Generated: 2, Stop: protocol.StopConditions{MaxTokens: 5}}
		var outs []protocol.EngineOutput
		tokens := NewTokens(r, func(o protocol.EngineOutput) error { outs = append(outs, o); return nil })
		for i, p := range []Piece{{IDs: []uint32{1}, Cached: test.cached}, {IDs: []uint32{2}, Reason: "stop"}} {
			if err := tokens.Add(p); err != nil {
				t.Fatal(i, err)
			}
		}
		if test.usage != nil {
			tokens.SetUsage(*test.usage)
		}
		if err := tokens.Close(); err != nil {
			t.Fatal(err)
		}
		if got := *outs[2].Usage; got != test.want {
			t.Errorf("%s: usage %+v, want %+v", name, got, test.want)
		}
		if timing := outs[0].Timing; (timing != nil) != (test.timing >= 0) || timing != nil && timing.CachedTokens != test.timing || outs[1].Timing != nil {
			t.Errorf("%s: timing %+v", name, timing)
		}
	}
}

func usageOf(prompt, completion int, cached *int) *Usage {
	u := &Usage{Prompt: prompt, Completion: completion}
	if cached != nil {
		u.Details = &struct {
			Cached *int `json:"cached_tokens"`
		}{cached}
	}
	return u
}

// Log probabilities that do not fit their tokens are refused.
func TestTokensLogprobs(t *testing.T) {
	one := 1
	r := &protocol.PreprocessedRequest{Stop: protocol.StopConditions{MaxTokens: 5, StopTokenIDs: []uint32{7}}, Output: protocol.OutputOptions{Logprobs: &one}}
	good := &protocol.Logprobs{Width: 1, Tokens: []float32{-1, -2}, TopIDs: []uint32{4, 5}, TopValues: []float32{-1, -2}}
	var out protocol.EngineOutput
	tokens := NewTokens(r, func(o protocol.EngineOutput) error { out = o; return nil })
	if err := tokens.Add(Piece{IDs: []uint32{3, 7}, Logprobs: good}); err != nil {
		t.Fatal(err)
	}
	if l := out.Logprobs; l == nil || !l.Valid(1) || l.Tokens[0] != -1 || l.TopIDs[0] != 4 {
		t.Errorf("log probabilities %+v of %v", l, out.TokenIDs)
	}
	for name, l := range map[string]*protocol.Logprobs{
		"none": nil, "too few": {Width: 1, Tokens: []float32{-1}, TopIDs: []uint32{4}, TopValues: []float32{-1}}, "another width": {Tokens: []float32{-1, -2}},
	} {
		err := NewTokens(r, func(protocol.EngineOutput) error { return nil }).Add(Piece{IDs: []uint32{3, 4}, Logprobs: l})
		var remote *requestplane.RemoteError
		if !errors.As(err, &remote) || remote.Kind != requestplane.KindUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLogprobs(t *testing.T) {
	var l protocol.Logprobs
	top := []Candidate{{9, -3}, {4, -1}, {5, -1}, {6, -20000}}
	if !AddLogprob(&l, -20000, top, 4) || l.Tokens[0] != -9999 || !slices.Equal(l.TopIDs, []uint32{4, 5, 9, 6}) || l.TopValues[3] != -9999 {
		t.Errorf("%+v", l)
	}
	if AddLogprob(&l, -1, top, 5) {
		t.Error("fewer candidates than asked for were taken")
	}
	for s, want := range map[string]bool{"token_id:7": true, "token_id:4294967296": false, "token_id:-1": false, "7": false, "token_id:": false} {
		if _, ok := TokenID(s); ok != want {
			t.Errorf("%q is a token: %v", s, ok)
		}
	}
}
