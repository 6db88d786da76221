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

// computer is a device of the node that runs engines.
type computer interface {
	// hostBytes returns how many bytes of host memory load needs for a model beside its
	// files.
	hostBytes(m *model.Model) int64
	// weightBytes returns about how many bytes of the device's memory load needs for a
	// model.
	weightBytes(m *model.Model) int64
	// towerBytes returns how many bytes of host memory the first image takes for the vision
	// tower of a model, beside its files; 0 if the device encodes none.
	towerBytes(m *model.Model) int64
	// memory returns the size of the device's own memory, in bytes; 0 if it shares the
	// host's.
	memory() int64
	// suits returns the type in which keys and values are kept, or an error if the device
	// cannot run the model as spec asks.
	suits(m *model.Model, spec cluster.EngineSpec) (kv string, err error)
	// load makes a model's weights ready for all workers of the device.
	load(ctx context.Context, m *model.Model) (weights, error)
	// loadTower makes those of its vision part ready, for workers that encode only.
	loadTower(ctx context.Context, m *model.Model) (weights, error)
}

// weights holds the weights of a model on a device.
type weights interface {
	// backend makes a worker's backend over the weights, and returns the size of its
	// pool. free is the host memory that can be allocated, in bytes, or 0 if unknown.
	backend(ctx context.Context, spec cluster.EngineSpec, free int64) (engine.Backend, pool, error)
	close(ctx context.Context) error
}

// pool is the size of a block pool: the blocks it gets, and the least it can do with
// where the user sets no size.
type pool struct{ blocks, least int }

// cpuDevice computes on CPU cores of the node.
type cpuDevice struct {
	*cpu.Device
	log *slog.Logger
}

func (d cpuDevice) hostBytes(m *model.Model) int64 { return d.CopyBytes(m) }

func (d cpuDevice) weightBytes(m *model.Model) int64 { return d.CopyBytes(m) + m.CopiedBytes() }

func (d cpuDevice) towerBytes(m *model.Model) int64 { return d.EncoderBytes(m) }

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
		return nil, err // not an interface around a nil pointer
	}
	if how := w.Warning(); how != "" {
		d.log.Warn("weights are converted for the device", "model", m.Dir(), "device", d.ID(), "how", how)
	}
	return cpuWeights{w}, nil
}

func (d cpuDevice) loadTower(_ context.Context, m *model.Model) (weights, error) {
	w, err := d.LoadVision(m)
	if err != nil {
		return nil, err
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

// withHostPool sizes a pool in host memory. It closes the backend if there is no room.
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
