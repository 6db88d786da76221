package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/worker"
)

// steps is the mock engine without its arithmetic, which would cost more than the
// measured path. The position selects the next token from a list. pace is the duration of
// a step, in nanoseconds.
type steps struct {
	*mock.Backend
	tokens []uint32
	pace   *atomic.Int64
}

// Step implements engine.Backend.
func (b *steps) Step(ctx context.Context, batch []engine.BatchSeq) error {
	if pace := time.Duration(b.pace.Load()); pace > 0 {
		t := time.NewTimer(pace)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, s := range batch {
		if s.Logits != nil {
			clear(s.Logits)
			s.Logits[b.tokens[(s.Start+len(s.Tokens))%len(b.tokens)]] = 1
		}
	}
	return nil
}

// mockBackend returns a backend with the vocabulary of the built-in model.
func (p *pathBench) mockBackend(o mock.Options, pace *atomic.Int64) engine.Backend {
	o.VocabSize = p.model.TokenLimit()
	return &steps{Backend: mock.New(o), tokens: p.ask.proc.EncodePrompt(workload.Words), pace: pace}
}

// mockLoader returns a loader of mock engines with the card of the built-in model.
func (p *pathBench) mockLoader(backend func() engine.Backend) loader {
	return func(_ context.Context, as cluster.Assignment, progress func(float64)) (*worker.Loaded, error) {
		l := &worker.Loaded{
			Backend: backend(), Blocks: as.Engine.KVBlocks,
			Card: cluster.ModelCard{
				DisplayName: as.Model.Name, Digest: p.model.Digest(), HashSeed: cluster.DefaultHashSeed,
				ModelType: "Chat | Completions", ModelInput: "Tokens",
			},
			Files: map[string][]byte{}, Release: func() {},
		}
		for _, f := range p.model.Files() {
			l.Card.Files = append(l.Card.Files, cluster.CardFile{Name: f.Name, SHA256: f.SHA256, Size: f.Size})
			l.Files[f.Name] = f.Data
		}
		progress(1)
		return l, nil
	}
}

// Names of cases, by target.
const (
	byEngine   = "engine alone, "
	byFrontend = "through the frontend, "
	byHTTP     = "net/http alone, "
)

const mockBlocks = 4096

// mocked measures the cost of the path itself.
func (p *pathBench) mocked(ctx context.Context, sec *Section) error {
	var pace atomic.Int64
	backend := func() engine.Backend { return p.mockBackend(mock.Options{BlockSize: rigBlockSize}, &pace) }
	bare, err := newRig(ctx, backend(), mockBlocks, p.log)
	if err != nil {
		return err
	}
	defer bare.close()
	served, err := p.node(ctx, nodeSpec{name: "mock", decode: 1, blocks: mockBlocks, load: p.mockLoader(backend)})
	if err != nil {
		return err
	}
	defer served.close()
	floor, err := startFloor(p.scale.path.mockOutput)
	if err != nil {
		return err
	}
	defer floor.close()
	frontend, plain := p.client.to(served.url), p.client.to(floor.url)
	if err := p.unpaced(ctx, sec, bare, frontend, plain); err != nil {
		return err
	}
	return p.paced(ctx, sec, &pace, bare, frontend)
}

// unpaced lets the engine run as fast as it can.
func (p *pathBench) unpaced(ctx context.Context, sec *Section, bare, frontend, plain target) error {
	sc := p.scale.path
	var cases []Case
	for _, streams := range sc.mockStreams {
		l := load{streams: streams, requests: 1, prompt: sc.prompt, output: sc.mockOutput, ask: p.ask}
		if streams == 1 {
			l.requests = sc.mockAlone
		}
		at := streamsText(streams)
		cases = append(cases, l.to(byEngine+at, bare), l.to(byFrontend+at, frontend), l.to(byHTTP+at, plain))
	}
	res, err := p.takeTurns(ctx, "path, mock engine", sc.turns, cases)
	if err != nil {
		return err
	}
	for _, streams := range sc.mockStreams {
		at := streamsText(streams)
		res.difference(byFrontend+at, keyAdded, keyTTFT+"_p50", byEngine+at)
		res.difference(byFrontend+at, keyAddedCPU, keyCPUMicros, byEngine+at)
		res.ratio(byFrontend+at, keyOfHTTP, keyRate, byHTTP+at, 100)
	}
	sec.Tables = append(sec.Tables, res.table("Mock engine, as fast as it can",
		fmt.Sprintf("Steps take no time, so that what is left is the path; %d tokens of output. net/http\n"+
			"alone answers each request at once with one event for each token.", sc.mockOutput), []Column{
			{keyTTFT + "_p50", "TTFT p50 ms", ""}, {keyTTFT + "_p99", "p99", ""},
			{keyAdded, "added TTFT p50 ms", "TTFT p50 less that of the engine alone"},
			{keyRate, "tokens/s", ""},
			{keyEvents, "events/s", "a reader that is slower than the engine gets several tokens in one event"},
			{keyCPUMicros, "CPU µs/token", "processor time of the whole process, the client's included"},
			{keyAddedCPU, "added CPU µs/token", "the same less that of the engine alone"},
			{keyOfHTTP, "% of net/http", "tokens/s against net/http alone"},
		}))
	return nil
}

// paced gives steps a duration, so that tokens travel one by one.
func (p *pathBench) paced(ctx context.Context, sec *Section, pace *atomic.Int64, bare, frontend target) error {
	sc := p.scale.path
	streams := sc.mockStreams[len(sc.mockStreams)-1]
	l := load{streams: streams, requests: 1, prompt: sc.prompt, output: sc.pacedOutput, ask: p.ask}
	at := streamsText(streams)
	cases := []Case{l.to(byEngine+at, bare), l.to(byFrontend+at, frontend)}
	pace.Store(int64(sc.pace))
	defer pace.Store(0)
	res, err := p.takeTurns(ctx, "path, paced mock engine", sc.turns, cases)
	if err != nil {
		return err
	}
	res.difference(byFrontend+at, keyAddedCPU, keyCPUMicros, byEngine+at)
	sec.Tables = append(sec.Tables, res.table(fmt.Sprintf("Mock engine, a step every %s", sc.pace),
		fmt.Sprintf("Slow enough for tokens to travel one by one; %d tokens of output.", sc.pacedOutput), []Column{
			{keyITL + "_p50", "ITL p50 ms", ""}, {keyITL + "_p95", "p95", ""}, {keyITL + "_p99", "p99", ""},
			{keyRate, "tokens/s", ""},
			{keyEvents, "events/s", ""},
			{keyCPUMicros, "CPU µs/token", "processor time of the whole process, the client's included"},
			{keyAddedCPU, "added CPU µs/token", "the same less that of the engine alone"},
		}))
	return nil
}
