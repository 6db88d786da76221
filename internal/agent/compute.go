package agent

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/model"
)

// computer is a device of the node, which engines compute on.
type computer interface {
	// hostBytes is how much memory of the host load takes for a model beside its files.
	hostBytes(m *model.Model) int64
	// weightBytes is how much memory of the device load takes for a model, about.
	weightBytes(m *model.Model) int64
	// memory is how much the device has of its own, in bytes; 0: it shares that of the host.
	memory() int64
	// suits says why a model cannot be computed with as spec asks, or else in which type
	// keys and values are kept.
	suits(m *model.Model, spec cluster.EngineSpec) (kv string, err error)
	// load makes a model's weights ready, for all workers of the device.
	load(ctx context.Context, m *model.Model) (weights, error)
}

// weights are those of a model on a device.
type weights interface {
	// backend makes a worker's backend over the weights, and says how large its pool is;
	// free is the memory of the host that can be allocated, 0 if nobody knows.
	backend(ctx context.Context, spec cluster.EngineSpec, free int64) (engine.Backend, pool, error)
	close(ctx context.Context) error
}

// pool is the size of a block pool: what it gets, and what it would do with where nobody
// said how large it shall be.
type pool struct{ blocks, least int }

// cpuDevice computes on cores of the node.
type cpuDevice struct {
	*cpu.Device
	log *slog.Logger
}

func (d cpuDevice) hostBytes(m *model.Model) int64 { return d.CopyBytes(m) }

func (d cpuDevice) weightBytes(m *model.Model) int64 { return d.CopyBytes(m) + m.CopiedBytes() }

func (cpuDevice) memory() int64 { return 0 }

func (cpuDevice) suits(m *model.Model, spec cluster.EngineSpec) (string, error) {
	c := m.Config()
	if err := engine.CheckTensorParallel(max(spec.TensorParallel, 1), c.Heads, c.KVHeads); err != nil {
		return "", err
	}
	return cpu.KVDType(m, spec.KVDType)
}

func (d cpuDevice) load(_ context.Context, m *model.Model) (weights, error) {
	w, err := d.Load(m)
	if err != nil {
		return nil, err // and no interface around a nil pointer
	}
	if how := w.Warning(); how != "" {
		d.log.Warn("weights are changed for the device", "model", m.Dir(), "device", d.ID(), "how", how)
	}
	return cpuWeights{w}, nil
}

type cpuWeights struct{ *cpu.Weights }

func (w cpuWeights) close(context.Context) error { return w.Close() }

func (w cpuWeights) backend(_ context.Context, spec cluster.EngineSpec, free int64) (engine.Backend, pool, error) {
	b, err := w.NewBackend(cpu.Options{BlockSize: spec.BlockSize, MaxContext: spec.MaxModelLen, KVDType: spec.KVDType, TensorParallel: spec.TensorParallel})
	if err != nil {
		return nil, pool{}, err
	}
	return withHostPool(b, spec, free)
}

// withHostPool sizes a pool in memory of the host. The backend is closed when there is no
// room.
func withHostPool(b engine.Backend, spec cluster.EngineSpec, free int64) (engine.Backend, pool, error) {
	n, err := poolSize(spec.KVBlocks, b.Info().KV.BlockBytes(), b.Info().MaxContext, spec.BlockSize, free)
	if err != nil {
		if e := b.Close(); e != nil {
			err = fmt.Errorf("%w; %w", err, e)
		}
		return nil, pool{}, err
	}
	return b, pool{n, n}, nil
}
