package module

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// Options change how kernels are loaded.
type Options struct {
	// Limits bounds the kernels' resources; nil is the table of package kernels. A
	// kernel without an entry is not checked.
	Limits []kernels.Limits
	// Strict makes a kernel that takes more than its limits an error.
	Strict bool
	// Portable leaves out the kernels for compute capability 9.0 and no other, in whose
	// place those for all devices compute.
	Portable bool
	// Overlap loads kernels that may be launched while the one before them still runs, where
	// the device can do that: see [kernels.Overlapping] and [Set.Overlaps].
	Overlap bool
}

// Kernel is a kernel that was loaded.
type Kernel struct {
	Name      string
	Unit      string // its image
	Target    Target
	Hash      string // of the image's PTX
	Function  uint64
	Resources driver.Resources
	// Excess says what it takes beyond its limits; empty for nothing.
	Excess []string
}

// Unfit is a kernel that a device has no room for. It is not among the functions: what
// needs it is refused when it is launched.
type Unfit struct {
	Name, Why string
}

// Unit is an image that was loaded.
type Unit struct {
	Name   string
	Target Target
	Hash   string
	Origin string        // of the image
	Took   time.Duration // to load, most of it to compile
}

// Set are kernels on a device.
type Set struct {
	d       *device.Device
	modules []uint64
	units   []Unit
	kernels []Kernel
	unfit   []Unfit
	overlap bool
}

// Load loads the fitting image of each unit. Without all of them it has loaded none, and
// the error has what the driver's compiler said. When ctx ends no further unit is begun;
// one that is being compiled is waited for.
func Load(ctx context.Context, d *device.Device, images []Image, o Options) (*Set, error) {
	p := d.Properties()
	if o.Limits == nil {
		var err error
		if o.Limits, err = kernels.AllLimits(); err != nil {
			return nil, fmt.Errorf("load kernels: %w", err)
		}
	}
	units, err := choose(images, p, o.Portable)
	if err != nil {
		return nil, fmt.Errorf("load kernels: %w", err)
	}
	s := &Set{d: d, overlap: o.Overlap && p.Major >= 9 && d.Driver().Version() >= overlapVersion}
	if s.overlap {
		for i := range units {
			u := &units[i]
			u.PTX = kernels.Overlapping(u.PTX)
			if u.target, err = u.Target(); err != nil {
				return nil, fmt.Errorf("load kernels: %w", err)
			}
		}
	}
	if err := s.load(ctx, units, o); err != nil {
		return nil, errors.Join(fmt.Errorf("load kernels on device %d (%s): %w", d.Index(), p.Name, err), s.Close())
	}
	return s, nil
}

// overlapVersion is the CUDA version since which graphs have launches that overlap.
const overlapVersion driver.Version = 12030

// load loads units side by side: compilers share nothing.
func (s *Set) load(ctx context.Context, units []chosen, o Options) error {
	var mu sync.Mutex
	var errs []error
	room := make(chan struct{}, min(runtime.GOMAXPROCS(0), 8))
	var wg sync.WaitGroup
	for _, u := range units {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			if ctx.Err() != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, context.Cause(ctx))
				return
			}
			begin := time.Now()
			drv, index := s.d.Driver(), s.d.Index()
			handle, err := drv.ModuleLoadData(index, u.PTX)
			took := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			if err := s.d.Check(err); err != nil {
				errs = append(errs, fmt.Errorf("%s (%s, PTX %s): %w", u.Name, u.target, u.Hash(), err))
				return
			}
			s.modules = append(s.modules, handle)
			s.units = append(s.units, Unit{u.Name, u.target, u.Hash(), u.Origin, took})
			for _, name := range u.Kernels {
				if err := s.add(handle, u, name, o); err != nil {
					errs = append(errs, fmt.Errorf("%s (%s, PTX %s): kernel %s: %w", u.Name, u.target, u.Hash(), name, err))
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(s.units, func(a, b Unit) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.kernels, func(a, b Kernel) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.unfit, func(a, b Unfit) int { return strings.Compare(a.Name, b.Name) })
	return errors.Join(errs...)
}

// add finds a kernel in a loaded module and checks it, with the lock of load held.
func (s *Set) add(module uint64, u chosen, name string, o Options) error {
	if i := slices.IndexFunc(s.kernels, func(k Kernel) bool { return k.Name == name }); i >= 0 {
		return fmt.Errorf("%w: %s has one of that name, too", driver.ErrInvalid, s.kernels[i].Unit)
	}
	drv, index, p := s.d.Driver(), s.d.Index(), s.d.Properties()
	k := Kernel{Name: name, Unit: u.Name, Target: u.target, Hash: u.Hash()}
	var err error
	if k.Function, err = drv.ModuleGetFunction(index, module, name); err != nil {
		return s.d.Check(err)
	}
	if k.Resources, err = drv.FuncGetAttributes(index, k.Function); err != nil {
		return s.d.Check(err)
	}
	if need := k.Resources.SharedBytes + kernels.DynamicShared(name); need > p.SharedBytes {
		s.unfit = append(s.unfit, Unfit{name, fmt.Sprintf("it needs %d bytes of shared memory, and a block has %d", need, p.SharedBytes)})
		return nil
	}
	// A launch says what it needs; that it may ask for all there is costs nothing.
	if err := drv.FuncSetMaxDynamicShared(index, k.Function, max(p.SharedBytes-k.Resources.SharedBytes, 0)); err != nil {
		return s.d.Check(err)
	}
	if l := limitsOf(o.Limits, name, p); l != nil {
		if k.Resources.MaxThreads < l.Threads {
			return fmt.Errorf("%w: the driver's compiler leaves room for blocks of %d threads, and it is launched with up to %d", driver.ErrInvalid, k.Resources.MaxThreads, l.Threads)
		}
		k.Excess = excess(k.Resources, l)
	}
	if o.Strict && len(k.Excess) > 0 {
		return fmt.Errorf("%w: it takes %s", driver.ErrInvalid, strings.Join(k.Excess, ", "))
	}
	s.kernels = append(s.kernels, k)
	return nil
}

// limitsOf finds the line of the table for a device: that of the latest architecture
// which is not later than it.
func limitsOf(table []kernels.Limits, kernel string, p driver.Properties) (found *kernels.Limits) {
	best := 0
	for i := range table {
		var arch int
		if table[i].Kernel != kernel {
			continue
		}
		if _, err := fmt.Sscanf(table[i].Arch, "sm_%d", &arch); err == nil && arch > best && arch <= 10*p.Major+p.Minor {
			best, found = arch, &table[i]
		}
	}
	return found
}

// excess says what a kernel takes beyond its limits.
func excess(r driver.Resources, l *kernels.Limits) (out []string) {
	for _, c := range []struct {
		what      string
		have, may int
	}{
		{"registers", r.Registers, l.Registers}, {"bytes of local memory", r.LocalBytes, l.StackBytes + l.SpillBytes}, {"bytes of shared memory", r.SharedBytes, l.SharedBytes},
	} {
		if c.have > c.may {
			out = append(out, fmt.Sprintf("%d %s instead of %d", c.have, c.what, c.may))
		}
	}
	return out
}

// Functions are the kernels' handles by name, as kernels.NewQueue takes them.
func (s *Set) Functions() map[string]uint64 {
	out := make(map[string]uint64, len(s.kernels))
	for _, k := range s.kernels {
		out[k.Name] = k.Function
	}
	return out
}

// Overlaps reports whether all kernels may be launched while the one before them in the
// stream still runs.
func (s *Set) Overlaps() bool { return s.overlap }

// Kernels lists what was loaded, by name.
func (s *Set) Kernels() []Kernel { return slices.Clone(s.kernels) }

// Unfit lists the kernels that the device has no room for, by name.
func (s *Set) Unfit() []Unfit { return slices.Clone(s.unfit) }

// Units lists the images that were loaded, by name.
func (s *Set) Units() []Unit { return slices.Clone(s.units) }

// Close unloads the kernels; none may be running, nor be part of a graph. Of a lost
// device nothing is unloaded.
func (s *Set) Close() error {
	if s.d.Err() != nil {
		return nil
	}
	var errs []error
	for _, m := range s.modules {
		errs = append(errs, s.d.Check(s.d.Driver().ModuleUnload(s.d.Index(), m)))
	}
	s.modules, s.kernels, s.units, s.unfit = nil, nil, nil, nil
	return errors.Join(errs...)
}
