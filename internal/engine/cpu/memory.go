package cpu

import (
	"fmt"
	"math"
	"sync"

	"github.com/dynctl/dynctl/internal/engine"
)

// memory is the KV memory of a backend.
type memory struct {
	data  []byte
	unmap func() error

	closeOnce sync.Once
	closeErr  error
}

var _ engine.KVMemory = (*memory)(nil)

func newMemory(blocks int, blockBytes int64) (*memory, error) {
	if blocks < 1 || blockBytes < 1 || int64(blocks) > math.MaxInt/blockBytes || blocks > math.MaxInt32 {
		return nil, fmt.Errorf("%d blocks of %d bytes", blocks, blockBytes)
	}
	data, unmap, err := mapMemory(blocks * int(blockBytes))
	if err != nil {
		return nil, err
	}
	return &memory{data: data, unmap: unmap}, nil
}

func (m *memory) Bytes() []byte { return m.data }

func (m *memory) Close() error {
	m.closeOnce.Do(func() { m.closeErr = m.unmap() })
	return m.closeErr
}
