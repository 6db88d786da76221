package route

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/router"
)

// job is a request on its way.
type job struct {
	*Request
	number   int
	arrived  time.Duration
	flight   *router.Flight
	stream   *engine.Stream
	token    time.Duration // when the last token came
	transfer *transfer     // of a prompt that is computed elsewhere
}

// worker is an engine in virtual time: the product's scheduler and block pool on a device
// that takes the time of a [Timing].
type worker struct {
	id   cluster.InstanceID
	name string
	device
	engine *engine.Stepper
	ahead  time.Duration // that the engine's clock is ahead during a step
	busy   bool
	events []kvEvent
	early  int // events before the step began
	rate   float64
	prompt []uint32 // scratch

	reused, blocks int // of the prompts whose first token has come

	prompts []hop // that are computed for other workers
}

// hop is a prompt that is computed for another worker.
type hop struct {
	prompt *engine.Prefilling
	then   func(*engine.Held) error
}

// prefill has the engine compute the first n tokens of a prompt and then calls then.
func (w *worker) prefill(j *job, n int, then func(*engine.Held) error) error {
	p, err := w.engine.Prefill(context.Background(), engine.PrefillRequest{ID: strconv.Itoa(j.number), Tokens: fill(nil, j.ids, n)})
	if err != nil {
		return fmt.Errorf("prompt of request %d: %w", j.number, err)
	}
	w.prompts = append(w.prompts, hop{p, then})
	return nil
}

// collectPrompts hands out the prompts that are computed.
func (w *worker) collectPrompts() error {
	all := w.prompts
	w.prompts = nil // what is called may begin the next step
	for _, h := range all {
		held, done, err := h.prompt.Take()
		switch {
		case !done:
			w.prompts = append(w.prompts, h)
			continue
		case err == nil:
			err = h.then(held)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kvEvent tells the router's index of blocks.
type kvEvent struct {
	stored bool
	hashes []uint64
}

// newWorker returns a worker whose clock is now.
func newWorker(i int, c *Config, now *time.Duration) (*worker, error) {
	w := &worker{id: cluster.InstanceID(i), name: cluster.WorkerName(i), device: device{timing: c.Timing, requests: c.Requests}}
	w.Timed = mock.Timed{BlockSize: BlockSize, Took: w.compute, Token: w.token}
	var err error
	w.engine, err = engine.NewStepper(engine.Config{
		NumBlocks: c.Blocks, MaxSeqs: maxSequences, MaxBatchTokens: maxBatchTokens, MaxWaiting: len(c.Requests) + 1, Sink: w,
		Now: func() time.Time { return time.Unix(0, 0).Add(*now + w.ahead) },
	}, &w.Timed)
	if err != nil {
		return nil, fmt.Errorf("worker %d: %w", i, err)
	}
	return w, nil
}

// Stored, Removed and Cleared make the worker the sink of its pool.
func (w *worker) Stored(_ *uint64, _ int, blocks []cluster.KVStoredBlock) {
	hashes := make([]uint64, len(blocks))
	for i, b := range blocks {
		hashes[i] = b.BlockHash
	}
	w.events = append(w.events, kvEvent{true, hashes})
}

func (w *worker) Removed(hashes []uint64, _ string) {
	w.events = append(w.events, kvEvent{false, hashes})
}

func (w *worker) Cleared(int) {}

// compute computes a batch, which takes the time that the clock advances.
func (w *worker) compute(entries []engine.BatchSeq) time.Duration {
	w.early = len(w.events)
	w.ahead = w.device.compute(entries)
	return w.ahead
}

// submit hands a request to the engine. r holds what the job does not say.
func (w *worker) submit(j *job, r engine.Request) (err error) {
	if most := w.engine.Engine.MaxModelLen(); j.Tokens+j.Output > most {
		return fmt.Errorf("request %d of %d tokens does not fit into a cache of %d", j.number, j.Tokens+j.Output, most)
	}
	w.prompt = fill(w.prompt[:0], j.ids, j.Tokens)
	r.ID, r.Tokens, r.Stop.MaxTokens, r.Sampling.Seed = strconv.Itoa(j.number), w.prompt, j.Output, uint64(j.number)
	if j.stream, err = w.engine.Engine.Submit(context.Background(), r); err != nil {
		return fmt.Errorf("request %d: %w", j.number, err)
	}
	return nil
}

// step computes the next step, if there is something to compute. It takes no time if it
// only admitted requests.
func (w *worker) step() (took time.Duration, progress bool, err error) {
	w.took, w.answered = 0, w.answered[:0]
	progress, err = w.engine.Step(context.Background())
	w.ahead = 0
	if w.took == 0 {
		w.early = len(w.events)
	}
	return w.took, progress, err
}
