package gpucheck

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/protocol"
)

// workloadText has the lengths of a prompt and of its answer in each line: those that
// bench.py of nano-vllm (GeeeekExplorer/nano-vllm) draws from Python's generator with the
// seed 0, 256 of each between 100 and 1024. Many have published what they reach with them.
//
//go:embed workload.txt
var workloadText []byte

// workloadModel is the one that those figures are of.
const workloadModel = "qwen3-0.6b"

// wanted is a prompt and an answer, in tokens.
type wanted struct{ prompt, answer int }

// workload is all that is wanted at once.
func workload() (all []wanted, err error) {
	for line := range bytes.Lines(workloadText) {
		var w wanted
		if _, err := fmt.Sscan(string(line), &w.prompt, &w.answer); err != nil {
			return nil, fmt.Errorf("the workload's line %q: %w", line, err)
		}
		all = append(all, w)
	}
	return all, nil
}

// workloadBlocks are the KV blocks of a sequence, so that all are there at once on average
// even at the end: (142827 + 133966) / 256 tokens, and the unused part of the last block.
const workloadBlocks = (142827+133966)/256/kvBlock + 3

// workloadVocab is up to where that workload draws its tokens.
const workloadVocab = 10000

// offline computes the workload under the scheduler, all prompts there from the beginning,
// and counts the tokens of answers.
func (e *loaded) offline(ctx context.Context) (f finding, err error) {
	all, err := workload()
	if err != nil {
		return f, err
	}
	if e.spec.Small {
		all = all[:4]
	}
	vocab := min(workloadVocab, e.backend.Info().TokenLimit)
	var prompts, answers, most int
	for i := range all {
		all[i] = wanted{e.tokens(all[i].prompt), e.tokens(all[i].answer)}
		prompts, answers, most = prompts+all[i].prompt, answers+all[i].answer, max(most, all[i].answer)
	}
	eng, err := engine.New(engine.Config{NumBlocks: e.blocks, MaxSeqs: e.sequences(len(all)), MaxWaiting: len(all), MaxBatchTokens: e.prompt, ITLTarget: time.Hour}, e.backend)
	if err != nil {
		return f, err
	}
	running, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(running) }()
	begin := time.Now()
	err = each(running, all, func(ctx context.Context, i int) error {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		tokens := make([]uint32, all[i].prompt)
		for k := range tokens {
			tokens[k] = uint32(r.IntN(vocab))
		}
		n, err := answer(ctx, eng, engine.Request{
			ID: strconv.Itoa(i), Tokens: tokens,
			Stop:     protocol.StopConditions{MaxTokens: all[i].answer},
			Sampling: protocol.SamplingOptions{Temperature: 0.6, Seed: uint64(i)},
		})
		if err == nil && n != all[i].answer {
			err = fmt.Errorf("sequence %d has %d tokens and not %d", i, n, all[i].answer)
		}
		return err
	})
	took := time.Since(begin)
	stats := eng.Stats()
	stop(errEnough)
	if broken := <-ended; !errors.Is(broken, errEnough) {
		err = errors.Join(err, broken)
	}
	if err != nil {
		return f, err
	}
	f.took = took.Seconds()
	// What decoding reads: the weights as often as the longest answer has tokens, KV for each
	// token of an answer.
	c := e.model.Config()
	var past float64
	for _, w := range all {
		past += float64(w.answer) * (float64(w.prompt) + float64(w.answer)/2)
	}
	attention := 4 * past * float64(c.Layers*c.Heads*c.HeadDim)
	f.cost(e.spec.Rates, float64(most)*e.readBytes()+past*float64(e.backend.Info().KV.BlockBytes())/kvBlock, float64(prompts+answers)*e.operations()+attention)
	also := f.also
	f.rate(float64(answers), "tokens/s")
	if also != nil {
		f.also["gb_per_s"] = also["gb_per_s"]
	}
	f.also["prompt_tokens"], f.also["answer_tokens"] = float64(prompts), float64(answers)
	f.also["steps"], f.also["preempted"] = float64(stats.StepsTotal), float64(stats.PreemptedTotal)
	return f, nil
}

var errEnough = errors.New("the workload is done")

// each calls f for all that is wanted at the same time; the first error ends all.
func each(ctx context.Context, all []wanted, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			if errs[i] = f(ctx, i); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// answer counts the tokens of an answer.
func answer(ctx context.Context, eng *engine.Engine, r engine.Request) (tokens int, err error) {
	stream, err := eng.Submit(ctx, r)
	if err != nil {
		return 0, err
	}
	defer stream.Cancel()
	for {
		out, err := stream.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return tokens, nil
		case err != nil:
			return 0, err
		case out.Err != nil:
			return 0, out.Err
		}
		tokens += len(out.Tokens)
	}
}
