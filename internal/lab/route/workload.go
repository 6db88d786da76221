package route

import (
	"io"
	"time"

	"github.com/dynctl/dynctl/internal/mooncake"
)

// BlockSize is the number of tokens in a block.
const BlockSize = mooncake.BlockSize

// Request is one request of a workload.
type Request struct {
	At     time.Duration
	Tokens int      // of the prompt
	Output int      // tokens
	Hashes []uint64 // of the prompt's full blocks

	blocks []uint64 // ids of the prompt's blocks in the workload; the last may be of a part
	ids    []uint32 // numbers of the blocks of prompt and answer
	chain  []uint64 // hashes of their full blocks; the last token is not computed
}

// reusable returns how many blocks of the prompt may come from a cache.
func (r *Request) reusable() int { return (r.Tokens - 1) / BlockSize }

// ReadMooncake reads a trace in the format of Mooncake.
func ReadMooncake(r io.Reader) ([]Request, error) {
	trace, err := mooncake.Read(r)
	if err != nil {
		return nil, err
	}
	out := make([]Request, len(trace))
	for i, q := range trace {
		out[i] = Request{At: q.At, Tokens: q.Input, Output: q.Output, blocks: q.Blocks}
	}
	number(out)
	return out, nil
}
