package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/dynctl/dynctl/internal/model"
)

// Column keys of this section.
const (
	keyTTFT      = "ttft_ms"
	keyITL       = "itl_ms"
	keyAdded     = "added_ttft_p50_ms"
	keyOfEngine  = "percent_of_engine"
	keyEvents    = "events_per_s"
	keyCPUMicros = "cpu_us_per_token"
	keyAddedCPU  = "added_cpu_us_per_token"
	keyOfHTTP    = "percent_of_net_http"
	keyTPOT      = "tpot_ms"
)

const pathBlocks = 1024 // KV blocks of each engine with the built-in model

func measurePath(ctx context.Context, s *session) (Section, error) {
	sec := Section{
		Title: "Path of a request",
		About: fmt.Sprintf("Chat completions over HTTP, streamed, through whole nodes inside this process, each with\n"+
			"its own embedded etcd and NATS, and the same prompts straight to an engine, which skips\n"+
			"HTTP, template, tokenizer, request plane and detokenizer. Prompts have about %d tokens and\n"+
			"share no prefix. The client runs in the same process and takes its share of the cores.",
			s.scale.path.prompt),
	}
	dir, err := model.Builtin(s.home)
	if err != nil {
		return sec, err
	}
	p, err := newPathBench(s, dir)
	if err != nil {
		return sec, err
	}
	defer p.close()
	if err := p.builtin(ctx, &sec); err != nil {
		return sec, err
	}
	err = p.mocked(ctx, &sec)
	return sec, err
}

// pathBench is the state that the measurements of this section share.
type pathBench struct {
	*session
	model  *model.Model
	ask    *asker
	client *sseClient
}

// newPathBench makes requests for the model in a directory.
func newPathBench(s *session, dir string) (*pathBench, error) {
	m, err := model.Open(dir, model.Options{Log: s.log})
	if err != nil {
		return nil, err
	}
	ask, err := newAsker(m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &pathBench{session: s, model: m, ask: ask, client: newSSEClient()}, nil
}

func (p *pathBench) close() {
	p.client.close()
	_ = p.model.Close() // it was only read
}

// node starts a node with a new state directory.
func (p *pathBench) node(ctx context.Context, spec nodeSpec) (*node, error) {
	p.say("starting a node with %d prefill and %d decode workers, %s", spec.prefill, spec.decode, spec.name)
	spec.dir = filepath.Join(p.tmp, spec.name)
	n, err := startNode(ctx, spec, p.log)
	if err != nil {
		return nil, fmt.Errorf("start node %s: %w", spec.name, err)
	}
	if spec.apart {
		if err := p.companion(ctx, n); err != nil {
			n.close()
			return nil, fmt.Errorf("start node %s: its second process: %w", spec.name, err)
		}
	}
	if err := n.waitServing(ctx, p.client, p.ask); err != nil {
		n.close()
		return nil, fmt.Errorf("start node %s: %w", spec.name, err)
	}
	return n, nil
}

// builtin compares real serving with the bare engine.
func (p *pathBench) builtin(ctx context.Context, sec *Section) error {
	bare, err := newCPURig(ctx, p.model, runtime.NumCPU(), pathBlocks, p.log)
	if err != nil {
		return err
	}
	defer bare.close()
	aggregated, err := p.node(ctx, nodeSpec{name: "aggregated", decode: 1, blocks: pathBlocks})
	if err != nil {
		return err
	}
	defer aggregated.close()
	disaggregated, err := p.node(ctx, nodeSpec{name: "disaggregated", prefill: 1, decode: 1, blocks: pathBlocks})
	if err != nil {
		return err
	}
	defer disaggregated.close()
	before, err := disaggregated.decodeStats(ctx)
	if err != nil {
		return err
	}

	sc := p.scale.path
	var cases []Case
	const whole, split = "aggregated, 0P+1D, ", "disaggregated, 1P+1D, "
	for _, streams := range sc.concurrency {
		l := load{streams: streams, requests: sc.requests, prompt: sc.prompt, output: sc.output, ask: p.ask}
		at := streamsText(streams)
		cases = append(cases, l.to(byEngine+at, bare), l.to(whole+at, p.client.to(aggregated.url)), l.to(split+at, p.client.to(disaggregated.url)))
	}
	res, err := p.takeTurns(ctx, "path, built-in model", sc.turns, cases)
	if err != nil {
		return err
	}
	for _, streams := range sc.concurrency {
		at := streamsText(streams)
		for _, by := range []string{whole, split} {
			res.difference(by+at, keyAdded, keyTTFT+"_p50", byEngine+at)
			res.ratio(by+at, keyOfEngine, keyRate, byEngine+at, 100)
		}
	}
	after, err := disaggregated.decodeStats(ctx)
	if err != nil {
		return err
	}
	remote, all := after.RemotePrefillTotal-before.RemotePrefillTotal, after.FinishedTotal-before.FinishedTotal
	sec.Notes = append(sec.Notes, fmt.Sprintf("Disaggregated: %d of %d prompts were prefilled by the prefill worker.", remote, all))
	sec.Tables = append(sec.Tables, res.table("Built-in model",
		fmt.Sprintf("%d tokens of output, %d requests a stream and repetition, one after the other.", sc.output, sc.requests), []Column{
			{keyTTFT + "_p50", "TTFT p50 ms", ""}, {keyTTFT + "_p95", "p95", ""}, {keyTTFT + "_p99", "p99", ""},
			{keyITL + "_p50", "ITL p50 ms", "gaps between events as the client reads them; events that arrive together have none"},
			{keyITL + "_p95", "p95", ""}, {keyITL + "_p99", "p99", ""},
			{keyTPOT + "_p50", "TPOT p50 ms", "mean time of a request's later tokens"},
			{keyRate, "tokens/s", ""},
			{keyAdded, "added TTFT p50 ms", "TTFT p50 less that of the engine alone"},
			{keyOfEngine, "% of engine", "tokens/s against the engine alone"},
		}))
	return p.beside(ctx, sec, bare)
}

// beside measures how long messages take while an engine computes in the same process:
// every hop of a request waits that long for its turn.
func (p *pathBench) beside(ctx context.Context, sec *Section, bare *rig) error {
	plain, err := newPingLoopback()
	if err != nil {
		return err
	}
	defer plain.close()
	sc := p.scale.path
	const busy = casePing + ", engine decoding"
	res, err := p.takeTurns(ctx, "path, beside a busy engine", sc.turns, []Case{
		latencyCase(casePing, time.Millisecond, func(context.Context) ([]time.Duration, error) { return plain.sparsePings(sc.pings) }),
		latencyCase(busy, time.Millisecond, func(ctx context.Context) ([]time.Duration, error) {
			computing, stop := context.WithCancel(ctx)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for computing.Err() == nil {
					_, _ = bare.generate(computing, generation{tokens: bare.prompt(1), output: 512}) // ends with computing
				}
			}()
			d, err := plain.sparsePings(sc.pings)
			stop()
			<-ended
			return d, errors.Join(err, bare.idle(ctx))
		}),
	})
	if err != nil {
		return err
	}
	res.ratio(busy, keyFactor, keyLatency+"_p50", casePing, 1)
	sec.Tables = append(sec.Tables, res.table("Messages beside a busy engine",
		"Round trips of 64 bytes over a plain connection inside the process, idle and while the\n"+
			"built-in model decodes one sequence on all cores. A request makes several such hops.",
		append(latencyColumns("ms"), Column{keyFactor, "× idle", ""})))
	return nil
}

func streamsText(n int) string {
	if n == 1 {
		return "1 stream"
	}
	return fmt.Sprintf("%d streams", n)
}
