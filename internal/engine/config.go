package engine

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Config holds the limits of an engine.
type Config struct {
	// NumBlocks is the size of the KV pool in blocks.
	NumBlocks int
	// MaxSeqs bounds the sequences that hold KV blocks at once: running sequences and
	// those that wait for a remote prefill.
	MaxSeqs int
	// MaxWaiting bounds the requests that wait for admission.
	MaxWaiting int
	// MaxBatchTokens is the token budget of one step; prompts longer than what is
	// left of it are computed in chunks.
	MaxBatchTokens int
	// ITLTarget bounds the duration of a step that also decodes. Chunks of prompts shrink
	// to keep to it, but not below MinChunkTokens.
	ITLTarget time.Duration
	// Speculative sets how tokens are drafted, to be verified several per step. The zero
	// value turns drafting off. Outputs do not depend on it.
	Speculative cluster.Speculative
	// MaxModelLen bounds prompt plus output, in tokens. 0 means the most that the model
	// and the pool allow.
	MaxModelLen int
	// HashSeed is the seed of block hashes.
	HashSeed uint64
	// Sink receives KV events; may be nil.
	Sink KVSink
	// Observe receives a report of each computed step; may be nil. The scheduler's
	// goroutine calls it, so it must not block.
	Observe func(StepReport)
	// Now is the clock of arrivals, waits and durations of steps; nil means [time.Now].
	Now func() time.Time
	Log *slog.Logger
}

// Defaults for Config fields that are zero.
const (
	DefaultMaxSeqs        = 64
	DefaultMaxWaiting     = 1024
	DefaultMaxBatchTokens = 512
	// DefaultITLTarget is about the pace of reading. A model of 0.6 billion parameters on
	// two cores keeps to it with chunks of some 64 tokens, and prefills at five sixths of
	// its speed with them. A chunk of 512 tokens would stall all streams for more than a
	// second.
	DefaultITLTarget = 200 * time.Millisecond
)

// MinChunkTokens is the least number of prompt tokens that a step computes beside
// decoding sequences, whatever the target. Prompts therefore never starve. Computing 32
// tokens takes hardly more than twice as long as reading the weights for one.
const MinChunkTokens = 32

// withDefaults fills in zero fields and checks the rest against the backend.
func (c Config) withDefaults(info BackendInfo) (Config, error) {
	if c.MaxSeqs == 0 {
		c.MaxSeqs = cmp.Or(info.Seqs, DefaultMaxSeqs)
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = DefaultMaxWaiting
	}
	if c.MaxBatchTokens == 0 {
		c.MaxBatchTokens = cmp.Or(info.BatchTokens, DefaultMaxBatchTokens)
	}
	if c.ITLTarget == 0 {
		c.ITLTarget = DefaultITLTarget
	}
	if c.HashSeed == 0 {
		c.HashSeed = cluster.DefaultHashSeed
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"kv_blocks", c.NumBlocks}, {"max_num_seqs", c.MaxSeqs}, {"max_waiting", c.MaxWaiting}, {"max_num_batched_tokens", c.MaxBatchTokens}} {
		if f.value < 1 {
			return c, fmt.Errorf("%s: %d is not positive", f.name, f.value)
		}
	}
	if c.ITLTarget < 0 {
		return c, fmt.Errorf("itl_target: %s is negative", c.ITLTarget)
	}
	if err := c.Speculative.Validate(); err != nil {
		return c, err
	}
	c.Speculative = c.Speculative.WithDefaults()
	if c.MaxModelLen < 0 || c.MaxModelLen > info.MaxContext {
		return c, fmt.Errorf("max_model_len: %d is not between 1 and the model's %d", c.MaxModelLen, info.MaxContext)
	}
	if c.MaxModelLen == 0 {
		c.MaxModelLen = info.MaxContext
	}
	// A sequence that fills the pool alone can always run, so nothing deadlocks.
	c.MaxModelLen = min(c.MaxModelLen, c.NumBlocks*info.KV.BlockSize)
	return c, nil
}
