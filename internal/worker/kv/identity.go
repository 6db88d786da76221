package kv

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Identity returns the properties in which workers must agree to exchange KV blocks.
func (p *Plane) Identity() protocol.KVIdentity {
	shape := p.cfg.Shape
	return protocol.KVIdentity{
		ModelSum: p.cfg.Model, BlockSize: shape.BlockSize, BlockBytes: shape.BlockBytes(),
		KVLayout: shape.Layout(), HashSeed: p.cfg.HashSeed,
	}
}

// Matches refuses blocks that mean something else at another worker than here; the
// error names both.
func (p *Plane) Matches(there protocol.KVIdentity, worker string) error {
	here := p.Identity()
	for _, c := range []struct {
		what        string
		there, here any
	}{
		{"model digest", there.ModelSum, here.ModelSum},
		{"block size", there.BlockSize, here.BlockSize},
		{"KV layout", there.KVLayout, here.KVLayout},
		{"block bytes", there.BlockBytes, here.BlockBytes},
		{"hash seed", there.HashSeed, here.HashSeed},
	} {
		if c.there != c.here {
			return fmt.Errorf("%w: %s is %v on %s and %v on %s", ErrMismatch, c.what, c.there, worker, c.here, p.cfg.Worker)
		}
	}
	return nil
}

// BlockSize returns the number of tokens in a block.
func (p *Plane) BlockSize() int { return p.cfg.Shape.BlockSize }

// BlockBytes is the size of a block, of all ranks together.
func (p *Plane) BlockBytes() int64 { return p.cfg.Shape.BlockBytes() }

// BlocksOf returns the number of blocks that hold the KV of so many tokens.
func (p *Plane) BlocksOf(tokens int) int {
	return (tokens + p.cfg.Shape.BlockSize - 1) / p.cfg.Shape.BlockSize
}
