package gpucheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

func smokeCases() []Case {
	all := []Case{{Name: "driver", run: checkDriver}, {Name: "memory", run: checkMemory}}
	for _, m := range kernels.Modules() {
		all = append(all, Case{Name: "load/" + m.Name, run: func(ctx context.Context, r *rig) (finding, error) {
			if err := r.exact(); err != nil && kernels.Exact(m.Name) {
				return finding{}, err
			}
			return r.checkUnit(ctx, m.Name)
		}})
	}
	for _, m := range kernels.Modules() {
		for _, k := range m.Kernels {
			all = append(all, Case{Name: "launch/" + k, run: func(ctx context.Context, r *rig) (finding, error) {
				c, known := casesByKernel()[k]
				if !known {
					return finding{}, fmt.Errorf("no case launches %s", k)
				}
				_, err := r.perform(ctx, c)
				return finding{notes: []string{c.Name}}, err
			}})
		}
	}
	return all
}

// casesByKernel are the first small cases that launch each kernel, which is found by
// preparing them.
var casesByKernel = sync.OnceValue(func() map[string]kerneltest.Case {
	found := map[string]kerneltest.Case{}
	for _, c := range kerneltest.Cases() {
		if c.Large {
			continue
		}
		names, err := c.Kernels()
		if err != nil {
			continue // a test of the cases says so
		}
		for _, n := range names {
			if _, known := found[n]; !known {
				found[n] = c
			}
		}
	}
	return found
})

func checkDriver(_ context.Context, r *rig) (finding, error) {
	p := r.dev.Properties()
	free, total, err := r.drv.MemGetInfo(r.dev.Index())
	if err != nil {
		return finding{}, err
	}
	f := finding{also: map[string]float64{
		"multiprocessors": float64(p.Multiprocessors), "memory_bytes": float64(total), "free_bytes": float64(free),
		"l2_bytes": float64(p.L2Bytes), "shared_bytes_of_a_block": float64(p.SharedBytes),
	}}
	if p.Major < 8 {
		return f, fmt.Errorf("compute capability %d.%d: kernels need 8.0", p.Major, p.Minor)
	}
	if r.about.Driver == "" && !r.spec.Pretended {
		f.notes = append(f.notes, "NVML tells nothing: results have no clocks, power and temperature")
	}
	return f, nil
}

// checkMemory sends bytes to the device and back.
func checkMemory(ctx context.Context, r *rig) (finding, error) {
	const n = 1<<20 + 13
	return finding{}, r.scoped(ctx, func(s *device.Scope) error {
		arena, err := s.Arena(device.Workspace, 2*n)
		if err != nil {
			return err
		}
		pinned, err := s.Pinned(device.IO, 2*n+operandAt)
		if err != nil {
			return err
		}
		from, err1 := pinned.Take(n)
		to, err2 := pinned.Take(n)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		for i := range from {
			from[i] = byte(i * 7)
		}
		a, b := arena.All().Slice(0, n), arena.All().Slice(n, n)
		if err := errors.Join(r.stream.Upload(a, from), r.stream.Copy(b, a), r.stream.Set(b.Slice(5, 3), 0xee), r.stream.Download(to, b), r.settle(ctx)); err != nil {
			return err
		}
		want := bytes.Clone(from)
		copy(want[5:], "\xee\xee\xee")
		if !bytes.Equal(to, want) {
			return errors.New("the data read back differs from the data written")
		}
		return nil
	})
}

// checkUnit loads a module: the figure is how long the driver compiles it, which it does
// not the next time. A driver that loads lazily compiles a kernel when it is asked for its
// resources.
func (r *rig) checkUnit(ctx context.Context, name string) (finding, error) {
	begin := time.Now()
	set, err := r.load(ctx, name)
	if err != nil {
		return finding{}, err
	}
	f := finding{figure: milliseconds(begin), unit: "ms", also: map[string]float64{}}
	for _, u := range set.Units() {
		f.also["module_ms"] = float64(u.Took) / 1e6
		f.notes = append(f.notes, joined(u.Target.String(), "PTX "+u.Hash, u.Origin))
	}
	for _, i := range r.images {
		if i.Name == name && i.Warnings != "" {
			f.notes = append(f.notes, i.Warnings)
		}
	}
	for _, k := range set.Kernels() {
		r.launched[k.Name] = true // so that the result has their hash
		f.also[k.Name+"_registers"] = float64(k.Resources.Registers)
		if len(k.Excess) > 0 {
			f.notes = append(f.notes, k.Name+" takes "+strings.Join(k.Excess, ", "))
		}
	}
	for _, u := range set.Unfit() {
		f.notes = append(f.notes, u.Name+" is left out: "+u.Why)
	}
	return f, nil
}
