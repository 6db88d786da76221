package kv

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/nixl"
)

// pool is a pool of KV blocks as NIXL agents know it, this worker's or that of a peer:
// memory for each tensor-parallel rank, with the rank's share of each block. The order of
// a block (heads first, see kvlayout.Shape) makes each run of heads one piece.
type pool struct {
	ranks     []nixl.Desc // all memory of each
	heads     int         // of all ranks together
	headBytes uint64      // of one head of one block
	blocks    int
}

// The label of a rank's memory is what tells peers the tensor-parallel degree of a worker
// and which heads lie where: of "kv.tp4.r1", the second quarter.
const regionLabel = "kv.tp"

func rankLabel(rank, ranks int) string { return fmt.Sprintf("%s%d.r%d", regionLabel, ranks, rank) }

// parseRankLabel reads what rankLabel makes, and nothing else.
func parseRankLabel(label string) (rank, ranks int, ok bool) {
	rest, ok := strings.CutPrefix(label, regionLabel)
	n, r, cut := strings.Cut(rest, ".r")
	if !ok || !cut {
		return 0, 0, false
	}
	ranks, err := strconv.Atoi(n)
	rank, err2 := strconv.Atoi(r)
	return rank, ranks, err == nil && err2 == nil && rank >= 0 && rank < ranks && rankLabel(rank, ranks) == label
}

// newPool is a pool of blocks of a shape. It fails with ErrMismatch where the memory of
// the ranks is not such a pool.
func newPool(shape kvlayout.Shape, ranks []nixl.Desc) (*pool, error) {
	n := len(ranks)
	if n == 0 || shape.KVHeads < 1 || shape.KVHeads%n != 0 {
		return nil, fmt.Errorf("%w: %d ranks do not share %d KV heads evenly", ErrMismatch, n, shape.KVHeads)
	}
	part := uint64(shape.BlockBytes()) / uint64(n)
	for i, r := range ranks {
		if r.Len != ranks[0].Len || r.Len%part != 0 || r.Len/part > math.MaxInt32 {
			return nil, fmt.Errorf("%w: rank %d of %d has %d bytes, rank 0 %d, a block takes %d of each", ErrMismatch, i, n, r.Len, ranks[0].Len, part)
		}
	}
	return &pool{
		ranks: ranks, heads: shape.KVHeads, headBytes: part / uint64(shape.KVHeads/n), blocks: int(ranks[0].Len / part),
	}, nil
}

// DeviceKV is memory of a pool on a device, which the data path knows under another name.
type DeviceKV interface {
	engine.KVMemory
	VRAM() nixl.DeviceMemory
}

// registerPool makes the memory of a pool known to this worker's agent and its peers, all
// ranks or none.
func registerPool(agent *nixl.Agent, shape kvlayout.Shape, mem engine.KVPool) (*pool, error) {
	list := make([]nixl.Registration, len(mem))
	for i, m := range mem {
		list[i] = nixl.Registration{Memory: m, Type: nixl.DRAM, Label: rankLabel(i, len(mem))}
		if d, ok := m.(DeviceKV); ok {
			list[i].Memory, list[i].Type = d.VRAM(), nixl.VRAM
		}
	}
	regions, err := agent.RegisterAll(list)
	if err != nil {
		return nil, err
	}
	ranks := make([]nixl.Desc, len(regions))
	for i, r := range regions {
		ranks[i] = r.Desc(0, r.Len())
	}
	return newPool(shape, ranks)
}

// remotePool finds the pool of a loaded peer whose blocks have a shape.
func remotePool(agent *nixl.Agent, peer string, shape kvlayout.Shape) (*pool, error) {
	regions, err := agent.RemoteRegions(peer)
	if err != nil {
		return nil, err
	}
	ranks, err := ranksOf(regions)
	if err == nil {
		var p *pool
		if p, err = newPool(shape, ranks); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("KV pool of %s: %w", peer, err)
}

// ranksOf is the memory of all ranks among what a peer publishes.
func ranksOf(regions []nixl.RemoteRegion) ([]nixl.Desc, error) {
	var found []nixl.Desc
	have := 0
	for _, r := range regions {
		rank, n, ok := parseRankLabel(r.Label)
		if !ok {
			continue
		}
		switch {
		case n > len(regions) || found != nil && n != len(found):
			return nil, fmt.Errorf("%w: region %q is one of %d ranks among %d regions", ErrMismatch, r.Label, n, len(regions))
		case found == nil:
			found = make([]nixl.Desc, n)
		}
		if found[rank] != (nixl.Desc{}) {
			return nil, fmt.Errorf("%w: two regions %q", ErrMismatch, r.Label)
		}
		found[rank] = r.Base
		have++
	}
	switch {
	case have == 0:
		return nil, errors.New("no region holds KV blocks")
	case have < len(found):
		return nil, fmt.Errorf("%w: regions of %d of %d ranks", ErrMismatch, have, len(found))
	}
	return found, nil
}

// part is the memory of some heads of one rank in all blocks, block by block.
func (p *pool) part(rank, from, heads int) nixl.Run {
	first := nixl.Desc{Addr: p.ranks[rank].Addr + uint64(from)*p.headBytes, Len: uint64(heads) * p.headBytes, DevID: p.ranks[rank].DevID}
	return nixl.Run{First: first, Stride: p.rankBytes(), Count: p.blocks}
}

// rankBytes returns the bytes of a block on each rank.
func (p *pool) rankBytes() uint64 { return uint64(p.heads/len(p.ranks)) * p.headBytes }

// descs is all memory of some blocks.
func (p *pool) descs(blocks []int32) []nixl.Desc {
	out := make([]nixl.Desc, 0, len(blocks)*len(p.ranks))
	n := p.rankBytes()
	for _, r := range p.ranks {
		for _, b := range blocks {
			out = append(out, nixl.Desc{Addr: r.Addr + uint64(b)*n, Len: n, DevID: r.DevID})
		}
	}
	return out
}

// selection describes some blocks of a pool for [nixl.Agent.MakeTransfer].
type selection struct {
	runs  []nixl.Run
	index []int32
}

// pair selects the same heads of blocks of two pools on either side, slice by slice, so
// that neighboring blocks of pools with the same number of ranks are neighbors in the
// lists. blocks and theirs pair up.
func (p *pool) pair(blocks []int32, other *pool, theirs []int32) (here, there selection, err error) {
	slices, err := sliceHeads(p.heads, len(p.ranks), len(other.ranks))
	if err != nil {
		return here, there, err
	}
	for i, s := range slices {
		here.runs = append(here.runs, p.part(s.here, s.fromHere, s.heads))
		there.runs = append(there.runs, other.part(s.there, s.fromThere, s.heads))
		if err := errors.Join(here.add(blocks, i, p.blocks), there.add(theirs, i, other.blocks)); err != nil {
			return here, there, err
		}
	}
	return here, there, nil
}

// add selects blocks of the i-th run, which are numbered behind those of the runs before.
func (s *selection) add(blocks []int32, i, perRun int) error {
	if (i+1)*perRun > math.MaxInt32 {
		return fmt.Errorf("%d slices of %d blocks are too many", i+1, perRun)
	}
	for _, b := range blocks {
		if b < 0 || int(b) >= perRun {
			return fmt.Errorf("block %d is not in a pool of %d: %w", b, perRun, nixl.ErrInvalidParam)
		}
		s.index = append(s.index, int32(i*perRun)+b)
	}
	return nil
}
