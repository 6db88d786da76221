package gpucheck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// Cases whose figures are what others are compared with: bandwidth of the memory in GB/s,
// and TFLOP/s of a large product by cuBLASLt or PyTorch.
const (
	copyFloor   = "floor/copy"
	cublasFloor = "floor/matmul-cublaslt"
	torchFloor  = otherPhase + "/matmul-8192"
)

func floorCases() []Case {
	return []Case{
		{Name: strings.TrimPrefix(copyFloor, "floor/"), run: measureCopy},
		{Name: "read", run: measureRead},
		{Name: strings.TrimPrefix(cublasFloor, "floor/"), run: measurePeak},
		{Name: "launch/stream", run: func(ctx context.Context, r *rig) (finding, error) { return r.measureLaunch(ctx, false) }},
		{Name: "launch/graph", run: func(ctx context.Context, r *rig) (finding, error) { return r.measureLaunch(ctx, true) }},
	}
}

// known are the rates of devices on which they were measured before: copies read and write,
// products are of bf16, 8192 in all three dimensions, by NVIDIA's library.
var known = map[string]Rates{
	"H200": {BytesPerSecond: 4.3e12, FLOPPerSecond: 788e12, From: "measured on an H200"},
}

// ratesOf returns the rates to compare a device's figures with: known ones, else those that
// this run has measured. Without a measurement of arithmetic there is no floor for
// cases that arithmetic limits.
func ratesOf(results []Result) *Rates {
	var out *Rates
	for _, r := range results {
		if r.Case != copyFloor || r.End != Passed || r.Pretended {
			continue
		}
		for name, rates := range known {
			if strings.Contains(r.Device, name) {
				return &rates
			}
		}
		out = &Rates{BytesPerSecond: r.Figure * 1e9, From: copyFloor}
	}
	if out == nil {
		return nil
	}
	for _, r := range results {
		if (r.Case == torchFloor || r.Case == cublasFloor) && r.End == Passed && r.Figure*1e12 > out.FLOPPerSecond {
			out.FLOPPerSecond, out.From = r.Figure*1e12, copyFloor+", "+r.Case
		}
	}
	return out
}

// stretch returns the bytes that copies and reads go over: far more than the second level cache.
func (r *rig) stretch() int64 {
	if r.spec.Small {
		return 1 << 16
	}
	free, _, err := r.drv.MemGetInfo(r.dev.Index())
	if err != nil {
		return 1 << 30
	}
	return min(1<<30, free/4) &^ (1<<20 - 1)
}

func measureCopy(ctx context.Context, r *rig) (f finding, err error) {
	n := r.stretch()
	err = r.scoped(ctx, func(s *device.Scope) error {
		a, err := s.Arena(device.Workspace, 2*n)
		if err != nil {
			return err
		}
		from, to := a.All().Slice(0, n), a.All().Slice(n, n)
		if err := r.stream.Set(from, 0x3c); err != nil {
			return err
		}
		f, err = r.measure(ctx, s, func(int) error { return r.stream.Copy(to, from) })
		f.rate(2*float64(n)/1e9, "GB/s")
		return err
	})
	return f, err
}

func measureRead(ctx context.Context, r *rig) (f finding, err error) {
	n := r.stretch()
	err = r.scoped(ctx, func(s *device.Scope) error {
		module, err := r.drv.ModuleLoadData(r.dev.Index(), readPTX)
		if err := r.dev.Check(err); err != nil {
			return err
		}
		f, err = r.readAll(ctx, s, module, n)
		f.rate(float64(n)/1e9, "GB/s")
		if errors.Is(err, errHung) || r.dev.Err() != nil {
			return err
		}
		return errors.Join(err, r.settle(ctx), r.dev.Check(r.drv.ModuleUnload(r.dev.Index(), module)))
	})
	return f, err
}

func (r *rig) readAll(ctx context.Context, s *device.Scope, module uint64, n int64) (f finding, err error) {
	function, err := r.drv.ModuleGetFunction(r.dev.Index(), module, readKernel)
	if err := r.dev.Check(err); err != nil {
		return f, err
	}
	blocks := max(r.dev.Properties().Multiprocessors, 1) * 8 // as many as fit
	if r.spec.Small {
		blocks = 3
	}
	threads := int64(blocks * readThreads)
	a, err := s.Arena(device.Workspace, n+4*threads)
	if err != nil {
		return f, err
	}
	from, sums := a.All().Slice(0, n), a.All().Slice(n, 4*threads)
	if err := r.stream.Set(from, 0x5c); err != nil {
		return f, err
	}
	l := driver.Launch{Function: function, Grid: driver.Dim{X: uint32(blocks)}, Block: driver.Dim{X: readThreads}}
	l.Args.Pointer(sums.Address).Pointer(from.Address).Int64(n / pieceBytes)
	if f, err = r.measure(ctx, s, func(int) error { return r.stream.Launch(&l) }); err != nil {
		return f, err
	}
	pinned, err := s.Pinned(device.IO, sums.Bytes)
	if err != nil {
		return f, err
	}
	got, err := pinned.Take(sums.Bytes)
	if err != nil {
		return f, err
	}
	if err := errors.Join(r.stream.Download(got, sums), r.settle(ctx)); err != nil {
		return f, err
	}
	// All words are the same: a sum is their number times one.
	for t := range threads {
		pieces := (n/pieceBytes - t + threads - 1) / threads
		want := uint32(max(pieces, 0)*pieceBytes/4) * 0x5c5c5c5c
		if sum := binary.LittleEndian.Uint32(got[4*t:]); sum != want {
			return f, fmt.Errorf("thread %d has read something that adds up to %#x, and not %#x", t, sum, want)
		}
	}
	return f, nil
}

// measureLaunch measures what a kernel costs that has nothing to do.
func (r *rig) measureLaunch(ctx context.Context, graph bool) (f finding, err error) {
	err = r.scoped(ctx, func(s *device.Scope) error {
		q := r.queue(ctx)
		a, err := s.Arena(device.Workspace, 4096)
		if err != nil {
			return err
		}
		at := a.All().Address
		if err := r.stream.Set(a.All(), 0); err != nil {
			return err
		}
		o := kernels.Norm{Out: at, X: at, Weight: at + 1024, Rows: 1, Hidden: 8, Eps: 1}
		launch := func(int) error { return q.RMSNorm(o) }
		if graph {
			f, err = r.measure(ctx, s, launch)
		} else {
			f, err = r.measureEager(ctx, launch)
		}
		f.figure, f.unit = f.took*1e6, "us"
		return err
	})
	return f, err
}
