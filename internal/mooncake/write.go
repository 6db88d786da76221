package mooncake

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
)

// Write writes a trace, a line for each request, as [Read] reads it. Times are written to the microsecond.
func Write(w io.Writer, requests []Request) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	for _, r := range requests {
		line := struct {
			Timestamp    float64  `json:"timestamp"` // ms
			InputLength  int      `json:"input_length"`
			OutputLength int      `json:"output_length"`
			HashIDs      []uint64 `json:"hash_ids"`
		}{math.Round(float64(r.At)/float64(time.Microsecond)) / 1000, r.Input, r.Output, r.Blocks}
		if err := e.Encode(line); err != nil {
			return fmt.Errorf("write the trace: %w", err)
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}
