package mooncake

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// BlockSize is the number of tokens that one id of a trace stands for.
const BlockSize = 512

// Limits of a trace.
const (
	maxLine     = 1 << 20 // bytes
	maxRequests = 1 << 20
	maxBlocks   = 1 << 24 // of all requests together
	maxTokens   = 1 << 24 // of one prompt or answer
	maxSpan     = 365 * 24 * time.Hour
)

// Request is one request of a trace.
type Request struct {
	At     time.Duration // since the beginning of the trace
	Input  int           // tokens of the prompt, at least 1, at most as many as its blocks have
	Output int           // tokens of the answer, at least 1
	Blocks []uint64      // ids of the prompt's blocks, at least one; the last may be of a part
}

// Read reads a trace, in the order of time. A prompt is taken to be as long as its blocks at
// most. Errors name the line. A trace of more than a million requests, or of more than
// sixteen million blocks, is refused.
func Read(r io.Reader) ([]Request, error) {
	var out []Request
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	blocks, n := 0, 0
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		q, err := parse(lines.Bytes())
		if err == nil {
			if blocks += len(q.Blocks); blocks > maxBlocks || len(out) == maxRequests {
				err = fmt.Errorf("a trace has %d requests and %d blocks at most", maxRequests, maxBlocks)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the trace: %w", n, err)
		}
		out = append(out, q)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the trace after line %d: %w", n, err)
	}
	slices.SortStableFunc(out, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	return out, nil
}

func parse(line []byte) (Request, error) {
	var l struct {
		Timestamp    *float64 `json:"timestamp"`
		InputLength  *int     `json:"input_length"`
		OutputLength int      `json:"output_length"`
		HashIDs      []uint64 `json:"hash_ids"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return Request{}, err
	}
	switch {
	case l.Timestamp == nil:
		return Request{}, errors.New("it has no timestamp")
	case !(*l.Timestamp >= 0 && *l.Timestamp <= float64(maxSpan/time.Millisecond)):
		return Request{}, fmt.Errorf("timestamp: %v is not between 0 and a year, in milliseconds", *l.Timestamp)
	case l.InputLength == nil:
		return Request{}, errors.New("it has no input_length")
	case *l.InputLength < 0 || *l.InputLength > maxTokens:
		return Request{}, fmt.Errorf("input_length: %d is not between 0 and %d", *l.InputLength, maxTokens)
	case l.OutputLength < 0 || l.OutputLength > maxTokens:
		return Request{}, fmt.Errorf("output_length: %d is not between 0 and %d", l.OutputLength, maxTokens)
	case len(l.HashIDs) == 0:
		return Request{}, errors.New("it has no hash_ids")
	}
	return Request{
		At:    time.Duration(math.Round(*l.Timestamp * float64(time.Millisecond))),
		Input: max(1, min(*l.InputLength, len(l.HashIDs)*BlockSize)), Output: max(1, l.OutputLength), Blocks: l.HashIDs,
	}, nil
}
