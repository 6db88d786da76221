package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu"
	"github.com/dynctl/dynctl/internal/engine/gpu"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cudaipc"
	"github.com/dynctl/dynctl/internal/undo"
)

// ErrDeviceLost ends a node that can no longer use one of its GPUs in this process. A new
// process can.
var ErrDeviceLost = errors.New("a GPU is lost")

// startGPUDevices makes devices of the GPUs that the configuration names.
func (a *Agent) startGPUDevices(ctx context.Context, back *undo.Stack) error {
	a.lost = make(chan error, 1)
	groups, all, err := a.cfg.GPU.Groups()
	if err != nil {
		return fmt.Errorf("gpu.devices: %w", err)
	}
	if len(groups) == 0 && !all {
		return nil
	}
	open := a.opts.CUDA
	if open == nil {
		open = driver.Open
	}
	drv, err := open()
	if err != nil {
		return fmt.Errorf("gpu.devices is %s: %w", a.cfg.GPU.Devices, err)
	}
	var devices []*gpu.Device
	back.Push("close the CUDA driver", func(context.Context) error {
		if slices.ContainsFunc(devices, func(d *gpu.Device) bool { return d != nil && d.Err() != nil }) {
			return nil // closing might never return; the process ends
		}
		return drv.Close()
	})
	if all {
		for i := range drv.DeviceCount() {
			groups = append(groups, []int{i})
		}
	}
	if a.vram, err = cudaipc.NewDevices(drv); err != nil {
		return fmt.Errorf("gpu.devices is %s: %w", a.cfg.GPU.Devices, err)
	}
	back.Push("release the memory of peers", func(context.Context) error { return a.vram.Close() })
	begin := time.Now()
	devices = make([]*gpu.Device, len(groups))
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, group := range groups { // each compiles kernels
		wg.Go(func() {
			devices[i], errs[i] = gpu.OpenGroup(ctx, drv, group, gpu.DeviceOptions{MemoryUtilization: a.cfg.GPU.MemoryUtilization, Portable: a.cfg.GPU.PortableKernels, Overlap: a.cfg.GPU.OverlapLaunches})
		})
	}
	wg.Wait()
	for _, d := range devices {
		if d != nil {
			a.addGPU(d, back)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("gpu.devices is %s: %w", a.cfg.GPU.Devices, err)
	}
	for _, d := range devices {
		if !d.Reach() {
			a.log.Warn("GPUs cannot access each other's memory: tensor-parallel ranks exchange data through the host, and decode steps run without CUDA graphs", "device", d.ID())
		}
	}
	a.log.Warn("engines compute on GPUs, which has not been tried on hardware yet", "gpus", len(devices), "took", time.Since(begin).Round(time.Millisecond))
	return nil
}

// addGPU registers a device and watches it for faults.
func (a *Agent) addGPU(d *gpu.Device, back *undo.Stack) {
	a.log.Info("GPU is ready", "device", d.ID(), "name", d.Name(), "kernels", d.Targets())
	a.devices[d.ID()] = gpuDevice{d, a.vram, a.cfg.GPU, a.log}
	a.nodeDevices = append(a.nodeDevices, cluster.Device{ID: d.ID(), Name: d.Name(), MemoryBytes: int64(a.cfg.GPU.MemoryUtilization * float64(d.MemoryBytes()))})
	closed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-d.Lost():
			select {
			case a.lost <- fmt.Errorf("%w: %s: %w", ErrDeviceLost, d.ID(), d.Err()):
			default: // another GPU was lost first
			}
		case <-closed:
		}
	}()
	back.Push("stop device "+d.ID(), func(ctx context.Context) error {
		close(closed)
		select {
		case <-ended:
		case <-ctx.Done(): // closing the device ends its context, too
		}
		return d.Close(ctx)
	})
}

// gpuDevice computes on a GPU of the node.
type gpuDevice struct {
	*gpu.Device
	vram *cudaipc.Devices
	cfg  config.GPU
	log  *slog.Logger
}

// hostBytes is 0: weights go from their files to the device.
func (d gpuDevice) hostBytes(*model.Model) int64 { return 0 }

func (gpuDevice) weightBytes(m *model.Model) int64 { return m.WeightBytes() }

// towerBytes is 0: CUDA kernels compute no images.
func (gpuDevice) towerBytes(*model.Model) int64 { return 0 }

func (d gpuDevice) memory() int64 {
	return int64(d.cfg.MemoryUtilization * float64(d.MemoryBytes()))
}

func (d gpuDevice) suits(m *model.Model, spec cluster.EngineSpec) (string, error) {
	kv, err := d.kvType(spec)
	if err != nil {
		return "", err
	}
	return kv, d.Supports(m.Config())
}

// kvType returns the type of a worker's keys and values.
func (d gpuDevice) kvType(spec cluster.EngineSpec) (string, error) {
	if n := d.Ranks(); spec.TensorParallel != 0 && spec.TensorParallel != n {
		return "", fmt.Errorf("tensor_parallel: %d ranks requested, but %s has %d: group the GPUs of the node in gpu.devices", spec.TensorParallel, d.ID(), n)
	}
	switch spec.KVDType {
	case cpu.KVAuto:
		return cpu.KVBF16, nil
	case cpu.KVBF16, cpu.KVInt8:
		return spec.KVDType, nil
	}
	return "", fmt.Errorf("kv_cache_dtype: a GPU keeps bf16 or int8, not %s", spec.KVDType)
}

// loadTower refuses: CUDA kernels compute no images.
func (d gpuDevice) loadTower(_ context.Context, m *model.Model) (weights, error) {
	return nil, fmt.Errorf("model %s: images are encoded on CPU devices only: give encode workers the device cpu", m.Dir())
}

func (d gpuDevice) load(ctx context.Context, m *model.Model) (weights, error) {
	w, err := d.Load(ctx, m)
	if err != nil {
		return nil, noRoom(err)
	}
	if why := w.Warning(); why != "" {
		d.log.Warn("weights are converted for the device", "model", m.Dir(), "device", d.ID(), "how", why)
	}
	return gpuWeights{w, d}, nil
}

// noRoom adds the node's ErrMemory to an error about a full device.
func noRoom(err error) error {
	if errors.Is(err, device.ErrNoRoom) {
		return fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return err
}

type gpuWeights struct {
	*gpu.Weights
	device gpuDevice
}

func (w gpuWeights) close(ctx context.Context) error { return w.Close(ctx) }

func (w gpuWeights) backend(ctx context.Context, spec cluster.EngineSpec, _ int64) (engine.Backend, pool, error) {
	kv, err := w.device.kvType(spec)
	if err != nil {
		return nil, pool{}, err
	}
	b, err := w.NewBackend(ctx, gpu.Options{
		BlockSize: spec.BlockSize, MaxContext: spec.MaxModelLen, KVDType: kv, MaxTokens: spec.MaxBatchTokens, MaxSeqs: spec.MaxSeqs, BatchInvariant: w.device.cfg.BatchInvariant,
	})
	if err != nil {
		return nil, pool{}, noRoom(err)
	}
	n, err := b.FitBlocks(spec.KVBlocks, w.device.cfg.KVShare)
	if err != nil {
		return nil, pool{}, errors.Join(noRoom(err), b.Close())
	}
	p := pool{n, n}
	if spec.KVBlocks == 0 {
		p.least = (b.Info().MaxContext + spec.BlockSize - 1) / spec.BlockSize
	}
	return gpuBackend{b, w.device.vram}, p, nil
}

// gpuBackend is a backend whose blocks the data path can reach.
type gpuBackend struct {
	*gpu.Backend
	vram *cudaipc.Devices
}

// AllocKV allocates the pool in device memory that peers can open.
func (b gpuBackend) AllocKV(n int) (engine.KVPool, error) {
	pool, err := b.Backend.AllocKV(n)
	if err != nil {
		return nil, err
	}
	for i := range pool { // ranks
		m := pool[i].(*gpu.KVMemory)
		arena, err := b.vram.Adopt(m.Device(), m.Address(), m.Size())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("share the KV blocks of %s: %w", b.Info().Device, err), pool.Close())
		}
		pool[i] = gpuMemory{m, arena}
	}
	return pool, nil
}

// gpuMemory is one rank's part of a block pool, with its handle in the data path.
type gpuMemory struct {
	*gpu.KVMemory
	arena *cudaipc.Arena
}

// VRAM implements kv.DeviceKV.
func (m gpuMemory) VRAM() nixl.DeviceMemory { return m.arena }

// Close frees the memory once peers have closed it. Until then it stays allocated.
func (m gpuMemory) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopStep)
	defer cancel()
	if err := m.arena.Close(ctx); err != nil {
		return err
	}
	return m.KVMemory.Close()
}
