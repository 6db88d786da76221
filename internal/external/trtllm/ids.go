package trtllm

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// The layout of a disagg_request_id, as TensorRT-LLM's own proxy makes them: milliseconds, the
// proxy's node and process, a counter.
const (
	timeBits    = 39
	sourceBits  = 14 // 8 of the node and 6 of the process; drawn here
	counterBits = 10
)

// Servers keep smaller ids for their own requests.
const (
	minID = uint64(1) << 42
	endID = uint64(1) << 63
)

// idSource makes ids of exchanges, each of which is used once.
type idSource struct {
	source  uint64
	counter atomic.Uint64
}

func (s *idSource) init() { s.source = rand.Uint64N(1 << sourceBits) } // #nosec G404 -- tells proxies apart

func (s *idSource) next(now time.Time) uint64 {
	ms := uint64(now.UnixMilli()) & (1<<timeBits - 1) // #nosec G115 -- cut to its low bits
	id := ms<<(sourceBits+counterBits) | s.source<<counterBits | s.counter.Add(1)&(1<<counterBits-1)
	return inRange(id)
}

// inRange moves an id to where the ids of proxies are, the same way for the same id.
func inRange(id uint64) uint64 { return id%(endID-minID) + minID }
