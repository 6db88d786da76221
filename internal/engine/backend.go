package engine

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/kvlayout"
)

// KVMemory is the memory of one rank of a block pool, block-major, off the Go heap and
// page-aligned. It stays at its address until Close.
type KVMemory interface {
	// Bytes returns the memory itself, or nil when the host cannot address it.
	Bytes() []byte
	// Close releases the memory. It must not be read or written afterwards.
	Close() error
}

// BatchSeq is the part of one sequence that a step computes. Several entries of a batch
// may belong to the same sequence. They then share the block table and come in order of
// position, and each sees the KV of the entries before it, as if they were one entry.
type BatchSeq struct {
	// Tokens are the new tokens; the first stands at position Start. KV of all
	// earlier positions is in the blocks. len(Tokens) is 1 for decode and more for
	// a prefill chunk.
	Tokens []uint32
	Start  int
	// Rows, when not nil, has an entry for each token: its embedding, of
	// [BackendInfo.Embedding] values, or nil for that of the token itself.
	Rows [][]float32
	// Positions, when not nil, are those by which the tokens rotate. Only a backend with
	// [BackendInfo.Grids] gets them.
	Positions *Positions
	// Mutual are runs of positions that attend to each other both ways, in order and apart;
	// they end within the entry, and the first may begin before it. Only a backend whose
	// [BackendInfo.Mutual] is set gets any.
	Mutual []Span
	// Blocks is the block table: Blocks[p/BlockSize] holds position p.
	Blocks []int32
	// Logits, when not nil, has VocabSize room and receives the logits that follow
	// the last token.
	Logits []float32
	// Choice, when not nil, asks for the token that follows the last one, in place of
	// logits. Only a [Chooser] gets it.
	Choice *Choice
}

// Span is a run of positions, [Start, End).
type Span struct{ Start, End int }

// Backend executes batch steps over a block pool. It does not schedule, and it does not
// know requests or caches.
//
// Results must not depend on the other entries of the batch, nor on how a prompt was cut
// into chunks: the same tokens give the same bits. A sequence that is moved, preempted or
// verified with drafts then continues unchanged. A backend that only keeps to this up to
// the last bits of logits documents that: its answers may differ where two tokens are
// about equally likely.
type Backend interface {
	// Info describes the loaded model; it never changes.
	Info() BackendInfo
	// AllocKV allocates the memory of a pool of n blocks, a piece for each rank. It is
	// called once, before the first Step. The backend does not free it: the caller
	// closes it.
	AllocKV(n int) (KVPool, error)
	// Step computes all sequences of the batch: it writes K and V of every new token into
	// the blocks and fills the requested logits. It returns when the results are
	// readable. Calls do not overlap. When ctx is cancelled, Step returns early with the
	// context's error, and the results are undefined.
	Step(ctx context.Context, batch []BatchSeq) error
	// Close releases what the backend holds. No method is called afterwards.
	Close() error
}

// BusyTimer is implemented by backends that share their device with other workers, so
// that a step may wait for its turn. The engine learns from Busy how long work takes. For
// other backends it measures the whole duration of steps.
type BusyTimer interface {
	// Busy returns how long the last Step computed, without the time it waited. It is
	// called after a Step that succeeded and before the next one.
	Busy() time.Duration
}

// BackendInfo describes a loaded model.
type BackendInfo struct {
	Device     string // "cpu:0"
	DeviceName string // "cpu 2c"
	VocabSize  int    // rows of the output head; ids at or above TokenLimit are masked
	TokenLimit int    // ids the tokenizer knows
	MaxContext int    // positions
	// Embedding is the number of values of [BatchSeq.Rows]; 0 if the backend takes none.
	Embedding int
	// Grids: rows of images rotate by their place in a grid, see [Positions].
	Grids bool
	// Mutual: the positions of one part of [Media] attend to each other both ways. Those
	// that are not computed yet come in one entry, because the KV of each depends on all.
	Mutual bool
	// TensorParallel is the number of ranks that share the heads of each layer, at least 1.
	TensorParallel int
	KV             kvlayout.Shape // of all ranks together
	// BatchTokens and Seqs are recommended values of [Config.MaxBatchTokens] and
	// [Config.MaxSeqs], used where the user sets none. 0 means the engine's defaults.
	BatchTokens, Seqs int
}
