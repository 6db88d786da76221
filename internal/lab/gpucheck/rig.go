package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/cuda/module"
	"github.com/dynctl/dynctl/internal/lab/cuda/nvrtc"
)

// rig is a device with what cases need.
type rig struct {
	spec    spec
	about   About
	drv     driver.Driver
	dev     *device.Device
	stream  *device.Stream
	done    *device.Event
	timer   *device.Timer
	watch   *watch
	random  *random // once it is needed
	loaded  *loaded // the model that the engine has, if any
	alive   func(what string, f func() error) error
	library *library // cuBLASLt, once it is needed

	images    []module.Image
	units     map[string]*unit // that were tried, by name
	functions map[string]uint64
	names     map[uint64]string // of functions
	hashes    map[string]string // of kernels
	launched  map[string]bool   // since the case began
}

// unit is a module that was loaded, or not.
type unit struct {
	set *module.Set
	err error
}

func newRig(ctx context.Context, s spec, open func(s spec) (driver.Driver, error)) (*rig, error) {
	d, err := open(s)
	if err != nil {
		return nil, err
	}
	if s.Device < 0 || s.Device >= d.DeviceCount() {
		return nil, errors.Join(fmt.Errorf("no device %d, there are %d", s.Device, d.DeviceCount()), d.Close())
	}
	dev, err := device.Open(d, s.Device)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	p := dev.Properties()
	r := &rig{
		spec: s, drv: d, dev: dev, watch: newWatch(p.PCI, s.Pretended),
		units: map[string]*unit{}, functions: map[string]uint64{}, names: map[uint64]string{}, hashes: map[string]string{}, launched: map[string]bool{},
		about: About{Device: p.Name, Capability: fmt.Sprintf("%d.%d", p.Major, p.Minor), CUDA: d.Version().String(), Build: s.Build, Pretended: s.Pretended},
	}
	r.about.Driver = r.watch.driver
	var errs [4]error
	r.images, errs[0] = r.findImages(ctx)
	r.stream, errs[1] = dev.NewStream(device.Normal)
	r.done, errs[2] = dev.NewEvent()
	r.timer, errs[3] = dev.NewTimer()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, r.close(ctx))
	}
	return r, nil
}

// findImages are the kernels of this program, or those of a folder in their place.
func (r *rig) findImages(ctx context.Context) ([]module.Image, error) {
	all := module.Builtin()
	if r.spec.Sources == "" {
		return all, nil
	}
	c, err := nvrtc.Open(r.spec.NVRTC)
	if err != nil {
		return nil, fmt.Errorf("compile the kernels in %s: %w", r.spec.Sources, err)
	}
	all, err = nvrtc.Sources{Dir: r.spec.Sources, Macros: r.spec.Macros, Compiler: c}.Images(ctx, r.dev.Properties(), all)
	for _, i := range all {
		if i.Origin != "" {
			r.about.Sources = i.Origin
		}
	}
	return all, err
}

func (r *rig) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.spec.Patience)
	defer cancel()
	var errs []error
	if err := r.settle(ctx); err == nil {
		if r.loaded != nil {
			errs = append(errs, r.loaded.close(ctx))
		}
		errs = append(errs, r.closeLibrary(ctx))
		for _, u := range r.units {
			if u.set != nil {
				errs = append(errs, u.set.Close())
			}
		}
	}
	errs = append(errs, r.dev.Close(ctx))
	if r.dev.Err() == nil { // the driver of a lost device cannot free what is left
		errs = append(errs, r.drv.Close())
	}
	return errors.Join(append(errs, r.watch.close())...)
}

// settle waits until the stream is empty.
func (r *rig) settle(ctx context.Context) error {
	if r.stream == nil {
		return nil
	}
	if err := r.stream.Record(r.done); err != nil {
		return err
	}
	return r.wait(ctx, r.done.Wait)
}

// wait waits for the device with patience. What takes longer hangs: the device is given up.
func (r *rig) wait(ctx context.Context, until func(ctx context.Context) error) error {
	patient, cancel := context.WithTimeout(ctx, r.spec.Patience)
	defer cancel()
	err := until(patient)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w after %s: %w", errHung, seconds(r.spec.Patience), err)
		r.dev.Abandon(err)
	}
	return err
}

// load loads a unit, once.
func (r *rig) load(ctx context.Context, name string) (*module.Set, error) {
	if u := r.units[name]; u != nil {
		return u.set, u.err
	}
	var images []module.Image
	for _, i := range r.images {
		if i.Name == name {
			images = append(images, i)
		}
	}
	u := &unit{}
	u.set, u.err = module.Load(ctx, r.dev, images, module.Options{})
	r.units[name] = u
	if u.err != nil {
		return nil, u.err
	}
	for _, k := range u.set.Kernels() {
		r.functions[k.Name], r.names[k.Function], r.hashes[k.Name] = k.Function, k.Name, k.Hash
	}
	return u.set, nil
}

// queue loads all kernels and returns where they go to be launched. Those that cannot be
// loaded are missing there.
func (r *rig) queue(ctx context.Context) *kernels.Queue {
	for _, i := range r.images {
		_, _ = r.load(ctx, i.Name) // the case of the unit in the first phase says why; a launch says that it is missing
	}
	return kernels.NewQueue(r, r.functions, r.dev.Index(), r.stream.Handle()).Tune(r.tuning())
}

// tuning is that of an engine on the device.
func (r *rig) tuning() kernels.Tuning {
	return kernels.Tuning{Multiprocessors: r.dev.Properties().Multiprocessors}
}

// exact returns an error if the device cannot run kernels for compute capability 9.0.
func (r *rig) exact() error {
	if p := r.dev.Properties(); p.Major != 9 || p.Minor != 0 {
		return skipped("for compute capability 9.0 only")
	}
	return nil
}

// TensorMapEncode implements kernels.Launcher.
func (r *rig) TensorMapEncode(index int, m *driver.TensorMap) (driver.EncodedTensorMap, error) {
	encoded, err := r.drv.TensorMapEncode(index, m)
	return encoded, r.dev.Check(err)
}

// LaunchKernel implements kernels.Launcher: it notes what is launched.
func (r *rig) LaunchKernel(index int, l *driver.Launch, stream uint64) error {
	if name := r.names[l.Function]; name != "" {
		r.launched[name] = true
	}
	return r.dev.Check(r.drv.LaunchKernel(index, l, stream))
}

// begin forgets what was launched.
func (r *rig) begin() { clear(r.launched) }

// used are the kernels that were launched since, and the hashes of their PTX.
func (r *rig) used() (names, hashes []string) {
	names = slices.Sorted(maps.Keys(r.launched))
	for _, n := range names {
		hashes = append(hashes, r.hashes[n])
	}
	slices.Sort(hashes)
	return names, slices.Compact(hashes)
}

func (r *rig) state() State { return r.watch.state() }

// scoped runs f with a scope of the device, whose memory is freed after it.
func (r *rig) scoped(ctx context.Context, f func(s *device.Scope) error) error {
	s, err := r.dev.NewScope()
	if err != nil {
		return err
	}
	err = f(s)
	if errors.Is(err, errHung) || r.dev.Err() != nil {
		return err
	}
	return errors.Join(err, r.wait(ctx, func(ctx context.Context) error {
		return errors.Join(r.stream.Record(r.done), r.done.Wait(ctx), s.Close(ctx))
	}))
}

// upload copies bytes into new memory of a scope.
func (r *rig) upload(ctx context.Context, s *device.Scope, content []byte) (uint64, error) {
	a, err := s.Arena(device.Workspace, int64(len(content)))
	if err != nil {
		return 0, err
	}
	host, err := s.Pinned(device.IO, int64(len(content)))
	if err != nil {
		return 0, err
	}
	from, err := host.Take(int64(len(content)))
	if err != nil {
		return 0, err
	}
	copy(from, content)
	return a.All().Address, errors.Join(r.stream.Upload(a.All(), from), r.settle(ctx))
}

// milliseconds since a moment.
func milliseconds(begin time.Time) float64 { return float64(time.Since(begin)) / 1e6 }

// joined are the texts that are not empty.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}
