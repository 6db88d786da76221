package cpu

import (
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/sharedmem"
)

// memory is the KV memory of a backend. Other processes of the machine can map it, so
// that a prefill worker writes into it directly.
type memory struct{ *sharedmem.Memory }

var _ engine.KVMemory = (*memory)(nil)

func newMemory(blocks int, blockBytes int64, node int) (*memory, error) {
	if blocks < 1 || blockBytes < 1 || int64(blocks) > math.MaxInt/blockBytes || blocks > math.MaxInt32 {
		return nil, fmt.Errorf("%d blocks of %d bytes", blocks, blockBytes)
	}
	m, err := sharedmem.New("kv-pool", blocks*int(blockBytes))
	if err != nil {
		return nil, err
	}
	adviseHugePages(m.Bytes())
	preferNode(m.Bytes(), node)
	return &memory{m}, nil
}
