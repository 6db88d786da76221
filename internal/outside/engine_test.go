package outside

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

func TestAnswersEndByTheirStopConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		stop   protocol.StopConditions
		want   []uint32
		finish protocol.FinishReason
	}{
		"length":                {protocol.StopConditions{MaxTokens: 3}, []uint32{1, 2, 3}, protocol.FinishLength},
		"the engine's end":      {protocol.StopConditions{MaxTokens: 9}, []uint32{1, 2, 3, 4, 5}, protocol.FinishStop},
		"exactly the length":    {protocol.StopConditions{MaxTokens: 5}, []uint32{1, 2, 3, 4, 5}, protocol.FinishLength},
		"a hidden stop token":   {protocol.StopConditions{MaxTokens: 9, StopTokenIDs: []uint32{4, 2}}, []uint32{1}, protocol.FinishStop},
		"a visible stop token":  {protocol.StopConditions{MaxTokens: 9, StopTokenIDsVisible: []uint32{2}}, []uint32{1, 2}, protocol.FinishStop},
		"not before the least":  {protocol.StopConditions{MaxTokens: 9, MinTokens: 2, StopTokenIDs: []uint32{2, 4}}, []uint32{1, 2, 3}, protocol.FinishStop},
		"visible, not before":   {protocol.StopConditions{MaxTokens: 9, MinTokens: 2, StopTokenIDsVisible: []uint32{2, 3}}, []uint32{1, 2, 3}, protocol.FinishStop},
		"a stop token at once":  {protocol.StopConditions{MaxTokens: 9, StopTokenIDs: []uint32{1}}, nil, protocol.FinishStop},
		"length before a token": {protocol.StopConditions{MaxTokens: 1, StopTokenIDs: []uint32{2}}, []uint32{1}, protocol.FinishLength},
	} {
		for _, many := range []bool{false, true} {
			var got []uint32
			a := &answer{Stopper: protocol.Stopper{Conditions: tc.stop}, send: func(item any) error {
				got = append(got, item.(protocol.EngineOutput).TokenIDs...)
				return nil
			}}
			var err error
			if many {
				err = a.emit(1, 2, 3, 4, 5)
			} else {
				for i := uint32(1); i <= 5 && err == nil; i++ {
					err = a.emit(i)
				}
			}
			over := a.Finish != protocol.FinishNone
			if !slices.Equal(got, tc.want) || cmp.Or(a.Finish, protocol.FinishStop) != tc.finish || a.Sent != len(tc.want) || over != (err != nil) {
				t.Errorf("%s: %v, %s, %d sent, %v", name, got, a.Finish, a.Sent, err)
			}
			if over && a.emit(9) == nil || over && !slices.Equal(got, tc.want) {
				t.Errorf("%s: it goes on", name)
			}
		}
	}
}

// generate answers as a frontend sees it.
func generate(t *testing.T, m *servedModel, p protocol.PreprocessedRequest) ([]protocol.EngineOutput, error) {
	t.Helper()
	body, err := requestplane.Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	var out []protocol.EngineOutput
	err = m.generate(t.Context(), &requestplane.Request{Body: body}, func(item any) error {
		out = append(out, item.(protocol.EngineOutput))
		return nil
	})
	return out, err
}

func TestGenerateRefuses(t *testing.T) {
	m := &servedModel{engine: func(context.Context, *Prompt, func(...uint32) error) error {
		t.Error("the engine was called")
		return nil
	}}
	m.card.Digest = "outside:1"
	one := 1
	fine := protocol.PreprocessedRequest{ModelSum: "outside:1", TokenIDs: []uint32{1}, Stop: protocol.StopConditions{MaxTokens: 1}}
	for name, tc := range map[string]struct {
		change func(*protocol.PreprocessedRequest)
		kind   requestplane.Kind
	}{
		"other files":           {func(p *protocol.PreprocessedRequest) { p.ModelSum = "x" }, requestplane.KindUnavailable},
		"no tokens":             {func(p *protocol.PreprocessedRequest) { p.TokenIDs = nil }, requestplane.KindInvalidArgument},
		"a form":                {func(p *protocol.PreprocessedRequest) { p.Guided = &protocol.Guided{} }, requestplane.KindInvalidArgument},
		"probabilities":         {func(p *protocol.PreprocessedRequest) { p.Output.Logprobs = &one }, requestplane.KindInvalidArgument},
		"those of the prompt":   {func(p *protocol.PreprocessedRequest) { p.Output.PromptLogprobs = &one }, requestplane.KindInvalidArgument},
		"an answer of no token": {func(p *protocol.PreprocessedRequest) { p.Stop.MaxTokens = 0 }, requestplane.KindInvalidArgument},
	} {
		p := fine
		tc.change(&p)
		_, err := generate(t, m, p)
		if e := (*requestplane.RemoteError)(nil); !errors.As(err, &e) || e.Kind != tc.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGenerate(t *testing.T) {
	m := &servedModel{}
	m.card.Digest = "outside:1"
	p := protocol.PreprocessedRequest{ // without a digest, as in a call by hand
		RequestID: "r1", TokenIDs: []uint32{7, 8, 9}, Generated: 1, Stop: protocol.StopConditions{MaxTokens: 4},
		Sampling: protocol.SamplingOptions{Temperature: 0.5, TopP: 0.9, TopK: 3, Seed: 5},
	}
	m.engine = func(_ context.Context, p *Prompt, emit func(...uint32) error) error {
		if p.ID != "r1" || !slices.Equal(p.Tokens, []uint32{7, 8, 9}) || p.Generated != 1 || p.MaxTokens != 4 || p.Temperature != 0.5 || p.TopP != 0.9 || p.TopK != 3 || p.Seed != 5 {
			t.Errorf("prompt %+v", p)
		}
		return emit(1, 2)
	}
	out, err := generate(t, m, p)
	if err != nil || len(out) != 2 || out[1].Finish != protocol.FinishStop || *out[1].Usage != (protocol.Usage{PromptTokens: 3, CompletionTokens: 2}) {
		t.Errorf("%+v %v", out, err)
	}
	m.engine = func(_ context.Context, _ *Prompt, emit func(...uint32) error) error {
		if err := emit(1); err != nil {
			return err
		}
		return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "out of memory"}
	}
	out, err = generate(t, m, p)
	if e := (*requestplane.RemoteError)(nil); !errors.As(err, &e) || e.Kind != requestplane.KindUnavailable || len(out) != 1 {
		t.Errorf("an engine that fails: %+v %v", out, err)
	}
}
