package route

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// BlockSize is the number of tokens in a block: that of the Mooncake traces.
const BlockSize = 512

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

// ReadMooncake reads a trace in the format of Mooncake: one JSON object a line. A prompt
// is taken to be as long as its blocks at most.
func ReadMooncake(r io.Reader) ([]Request, error) {
	var out []Request
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l struct {
			Timestamp    int64    `json:"timestamp"`
			InputLength  int      `json:"input_length"`
			OutputLength int      `json:"output_length"`
			HashIDs      []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d of the trace: %w", len(out)+1, err)
		}
		out = append(out, Request{
			At: time.Duration(l.Timestamp) * time.Millisecond, Tokens: max(1, min(l.InputLength, len(l.HashIDs)*BlockSize)),
			Output: max(1, l.OutputLength), blocks: l.HashIDs,
		})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	number(out)
	return out, nil
}
