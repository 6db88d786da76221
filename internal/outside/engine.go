package outside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/tokenizer"
)

// Prompt is what an engine continues.
type Prompt struct {
	ID     string
	Tokens []uint32 // never empty
	// Generated counts how many of the last Tokens were generated before, by a program that
	// could not finish. The engine goes on after them.
	Generated   int
	MaxTokens   int     // of the answer; at least 1
	Temperature float32 // 0 is greedy
	TopP        float32 // 0 or 1: off
	TopK        int     // 0 or less: off
	Seed        uint64

	Tokenizer *tokenizer.Tokenizer // of the model
}

// Engine continues a prompt. It calls emit for the tokens of the answer, in order and as few
// or many at a time as it has them, and returns nil at the end. Emit fails when no more
// tokens are wanted: the answer has its length or a token that ends it, or the client left.
// The engine returns that error then. Several calls run at the same time. A
// [requestplane.RemoteError] reaches the frontend as it is; every other error is internal.
type Engine func(ctx context.Context, p *Prompt, emit func(tokens ...uint32) error) error

// errEnough is returned by emit when the answer is complete.
var errEnough = errors.New("the answer is complete")

// servedModel answers the requests of frontends.
type servedModel struct {
	card   cluster.ModelCard
	files  map[string][]byte
	tok    *tokenizer.Tokenizer
	engine Engine
}

// filePiece is the part of a file in one item.
const filePiece = 4 << 20

// sendFiles sends the files of the model, in pieces.
func (m *servedModel) sendFiles(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.ModelFilesRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	for _, name := range req.Names {
		content, ok := m.files[name]
		if !ok {
			return invalid("no file %q with this model", name)
		}
		for piece := range slices.Chunk(content, filePiece) {
			if err := send(protocol.ModelFile{Name: name, Content: piece}); err != nil {
				return err
			}
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: fmt.Sprintf(format, args...)}
}

// check refuses what an engine outside does not do.
func (m *servedModel) check(p *protocol.PreprocessedRequest) error {
	switch {
	case p.ModelSum != "" && p.ModelSum != m.card.Digest: // a call by hand names none
		return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "this engine serves other files of the model"}
	case len(p.TokenIDs) == 0:
		return invalid("the prompt has no tokens")
	case p.Guided != nil:
		return invalid("this model does not constrain its answers")
	case p.Output.Logprobs != nil || p.Output.PromptLogprobs != nil:
		return invalid("this model has no log probabilities")
	case p.Stop.MaxTokens <= 0:
		return invalid("max_tokens must be at least 1")
	}
	return nil
}

// generate answers a prompt.
func (m *servedModel) generate(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var p protocol.PreprocessedRequest
	if err := r.Decode(&p); err != nil {
		return err
	}
	if err := m.check(&p); err != nil {
		return err
	}
	a := &answer{Stopper: protocol.Stopper{Conditions: p.Stop}, send: send}
	prompt := &Prompt{
		ID: p.RequestID, Tokens: p.TokenIDs, Generated: p.Generated, MaxTokens: p.Stop.MaxTokens,
		Temperature: p.Sampling.Temperature, TopP: p.Sampling.TopP, TopK: p.Sampling.TopK, Seed: p.Sampling.Seed, Tokenizer: m.tok,
	}
	err := m.engine(ctx, prompt, a.emit)
	switch {
	case a.failed != nil:
		return a.failed
	case a.Finish == protocol.FinishNone && err != nil:
		return err
	}
	return send(protocol.EngineOutput{Finish: cmp.Or(a.Finish, protocol.FinishStop), Usage: &protocol.Usage{PromptTokens: len(p.TokenIDs), CompletionTokens: a.Sent}})
}

// answer sends tokens until one of the stop conditions is met.
type answer struct {
	protocol.Stopper
	send   func(any) error
	failed error // of send
}

// emit sends tokens. It is called by one goroutine.
func (a *answer) emit(tokens ...uint32) error {
	if a.failed != nil {
		return a.failed
	}
	if n := a.Keep(tokens); n > 0 {
		if a.failed = a.send(protocol.EngineOutput{TokenIDs: tokens[:n]}); a.failed != nil {
			return a.failed
		}
	}
	if a.Finish != protocol.FinishNone {
		return errEnough
	}
	return nil
}
