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
	Hashes []uint64 // of the prompt's blocks; the last may be of a part, as in the traces
}

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
		for i := range l.HashIDs {
			l.HashIDs[i] = mix(l.HashIDs[i] + 1)
		}
		out = append(out, Request{
			At: time.Duration(l.Timestamp) * time.Millisecond, Tokens: max(1, min(l.InputLength, len(l.HashIDs)*BlockSize)),
			Output: max(1, l.OutputLength), Hashes: l.HashIDs,
		})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	return out, nil
}

// mix is the finalizer of MurmurHash3: ids become hashes.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
