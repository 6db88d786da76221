package fake

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/emulator"
)

type module struct {
	device  int
	entries []string
	waits   map[string]bool  // those that begin with a wait for the kernel before
	ptx     *emulator.Module // nil unless modules run as they are
}

type function struct {
	module uint64
	kernel Kernel
	waits  bool
	shared int // dynamic bytes that launches may ask for
}

var (
	entry      = regexp.MustCompile(`\.entry\s+([A-Za-z_$][A-Za-z0-9_$]*)(?:[^{]*\{\s*(griddepcontrol\.wait;))?`)
	ptxVersion = regexp.MustCompile(`(?m)^\.version\s+\d+\.\d+`)
)

// entryPoint is a kernel by its name in PTX.
type entryPoint struct {
	name  string
	waits bool // for the kernel before
}

// entries are those of modules by their text: tests load the same ones again and again.
var entries sync.Map

func entriesOf(image []byte) (all []entryPoint) {
	if known, ok := entries.Load(string(image)); ok {
		return known.([]entryPoint)
	}
	for _, match := range entry.FindAllSubmatch(image, -1) {
		all = append(all, entryPoint{string(match[1]), len(match[2]) > 0})
	}
	entries.Store(string(image), all)
	return all
}

// ModuleLoadData implements driver.Driver: it reads the names of kernels in PTX, or all of
// it where modules run as they are.
func (d *Driver) ModuleLoadData(device int, image []byte) (uint64, error) {
	const call = "cuModuleLoadDataEx"
	if err := d.enter(call, device); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if !ptxVersion.Match(image) || !bytes.Contains(image, []byte("\n.target")) {
		return 0, &driver.Error{Call: call, Device: device, Result: driver.InvalidPTX, Detail: "no .version and .target at the beginning"}
	}
	m := &module{device: device, waits: map[string]bool{}}
	if d.ptx {
		var err error
		if m.ptx, err = loadPTX(image); err != nil {
			return 0, &driver.Error{Call: call, Device: device, Result: driver.InvalidPTX, Detail: err.Error()}
		}
	}
	for _, e := range entriesOf(image) {
		m.entries = append(m.entries, e.name)
		m.waits[e.name] = e.waits
	}
	id := d.number()
	d.modules[id] = m
	return id, nil
}

// ModuleUnload implements driver.Driver.
func (d *Driver) ModuleUnload(device int, id uint64) error {
	if err := d.enter("cuModuleUnload", device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if m := d.modules[id]; m == nil || m.device != device {
		return d.fault("cuModuleUnload", device, driver.InvalidHandle, "no module %#x", id)
	}
	delete(d.modules, id)
	for f, fn := range d.funcs {
		if fn.module == id {
			delete(d.funcs, f)
		}
	}
	return nil
}

// ModuleGetFunction implements driver.Driver. The kernel must be in the module and, unless
// modules run as they are, among those of Options.
func (d *Driver) ModuleGetFunction(device int, id uint64, name string) (uint64, error) {
	const call = "cuModuleGetFunction"
	if err := d.enter(call, device); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	m := d.modules[id]
	if m == nil || m.device != device {
		return 0, d.fault(call, device, driver.InvalidHandle, "no module %#x", id)
	}
	k, known := d.kernels[name]
	if m.ptx != nil && m.ptx.Kernel(name) != nil {
		compiled := m.ptx.Kernel(name)
		if !known {
			k.Resources = driver.Resources{MaxThreads: 1024, SharedBytes: compiled.SharedBytes}
			known = true
		}
		k.Name, k.Run = name, func(c *Call) { c.emulate(compiled) }
	}
	if !known || !slices.Contains(m.entries, name) {
		return 0, &driver.Error{Call: call, Device: device, Result: driver.NotFound, Detail: "kernel " + name}
	}
	n := d.number()
	d.funcs[n] = &function{module: id, kernel: k, waits: m.waits[name], shared: 48 << 10}
	return n, nil
}

func (d *Driver) function(call string, device int, id uint64) (*function, error) {
	if f := d.funcs[id]; f != nil && d.modules[f.module].device == device {
		return f, nil
	}
	return nil, d.fault(call, device, driver.InvalidHandle, "no function %#x", id)
}

// FuncGetAttributes implements driver.Driver.
func (d *Driver) FuncGetAttributes(device int, id uint64) (r driver.Resources, err error) {
	if err := d.enter("cuFuncGetAttribute", device); err != nil {
		return r, err
	}
	defer d.mu.Unlock()
	f, err := d.function("cuFuncGetAttribute", device, id)
	if err != nil {
		return r, err
	}
	return f.kernel.Resources, nil
}

// FuncSetMaxDynamicShared implements driver.Driver.
func (d *Driver) FuncSetMaxDynamicShared(device int, id uint64, bytes int) error {
	const call = "cuFuncSetAttribute"
	if err := d.enter(call, device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	f, err := d.function(call, device, id)
	if err != nil {
		return err
	}
	if most := d.devices[device].properties.SharedBytes; bytes > most {
		return d.fault(call, device, driver.InvalidValue, "%d bytes of shared memory, the device has %d", bytes, most)
	}
	f.shared = bytes
	return nil
}

// LaunchKernel implements driver.Driver.
func (d *Driver) LaunchKernel(device int, l *driver.Launch, stream uint64) error {
	const call = "cuLaunchKernel"
	if err := d.enter(call, device); err != nil {
		return err
	}
	f, err := d.function(call, device, l.Function)
	if err == nil && int(l.SharedBytes) > f.shared {
		err = d.fault(call, device, driver.InvalidValue, "%s asks for %d bytes of shared memory, and FuncSetMaxDynamicShared allowed %d", f.kernel.Name, l.SharedBytes, f.shared)
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	args, run, took := bytes.Clone(l.Args.Bytes()), f.kernel.Run, f.kernel.Took
	grid, block, shared := l.Grid, l.Block, l.SharedBytes
	return d.enqueue(call, device, stream, work{what: "kernel " + f.kernel.Name, took: took, kernel: true, early: l.Overlap && !f.waits, run: func(c *Call) {
		c.Grid, c.Block, c.SharedBytes, c.args, c.next = grid, block, shared, args, 0
		c.kernel = true
		run(c)
		c.kernel = false
	}})
}

// Faults returns what was done wrong so far, and forgets it, for tests that do wrong on
// purpose.
func (d *Driver) Faults() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := errors.Join(d.faults...)
	d.faults = nil
	return err
}
