package gpu

import (
	"errors"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/kvlayout"
)

// rank is a backend's state on the GPU of a tensor-parallel rank. The first rank holds
// the results of a step.
type rank struct {
	*Backend
	weights *shard
	unit    *unit
	scope   *device.Scope
	shape   kvlayout.Shape // of the rank's heads
	memory  activations
	in      inputs
	out     outputs
	draws   draws // used by the first rank
	ropes   [numRopes]ropeTable
	kv      uint64 // the rank's block pool, 0 before AllocKV
	lanes   [numLanes]lane
}

// Decode steps have priority over prompts of other backends.
const (
	urgent = iota
	normal
	numLanes
)

// lane is a stream and the queue that launches kernels in it.
type lane struct {
	stream *device.Stream
	queue  *kernels.Queue
	mark   *device.Event // recorded where the streams of other ranks wait for this one
	end    *device.Event // of a pass
}

func (b *Backend) openRank(s *shard) (err error) {
	r := &rank{Backend: b, weights: s, unit: s.unit, shape: b.info.KV.Rank(len(b.weights.shards))}
	if r.scope, err = r.unit.dev.NewScope(); err != nil {
		return err
	}
	b.ranks = append(b.ranks, r)
	return errors.Join(r.openLane(&r.lanes[urgent], device.Urgent), r.openLane(&r.lanes[normal], device.Normal))
}

func (r *rank) openLane(l *lane, p device.Priority) (err error) {
	if l.stream, err = r.scope.NewStream(p); err != nil {
		return err
	}
	if l.mark, err = r.scope.NewEvent(); err != nil {
		return err
	}
	if l.end, err = r.scope.NewEvent(); err != nil {
		return err
	}
	l.queue = kernels.NewQueue(r.unit.dev.Driver(), r.unit.functions, r.unit.dev.Index(), l.stream.Handle())
	l.queue.Tune(kernels.Tuning{Multiprocessors: r.unit.dev.Properties().Multiprocessors, Portable: r.options.BatchInvariant, Overlap: r.unit.kernels.Overlaps()})
	return nil
}

// first reports whether the rank holds the results.
func (r *rank) first() bool { return r.weights.rank == 0 }
