package ucp

import (
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Context is the set of devices a process uses. Its methods may be called at the same
// time.
type Context struct {
	lib *Library
	h   uintptr
}

// Setting is an option of UCX, named without its prefix UCX_.
type Setting struct{ Name, Value string }

// NewContext opens devices. The settings come after those of the environment.
func (l *Library) NewContext(settings ...Setting) (*Context, error) {
	var cfg uintptr
	if err := check(dynlib.Call(l.fn.configRead, 0, 0, uintptr(unsafe.Pointer(&cfg)))); err != nil {
		return nil, fmt.Errorf("read UCX configuration: %w", err)
	}
	defer dynlib.Call(l.fn.configRelease, cfg)
	for _, s := range settings {
		n, v := cstring(s.Name), cstring(s.Value)
		if err := check(dynlib.Call(l.fn.configModify, cfg, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&v[0])))); err != nil {
			return nil, fmt.Errorf("set UCX_%s=%s: %w", s.Name, s.Value, err)
		}
	}
	p := &contextParams{
		mask: paramFeatures | paramMTWorkersShared, features: featureRMA | featureAM | featureWakeup, mtWorkersShared: 1,
	}
	c := &Context{lib: l}
	if err := check(dynlib.Call(l.fn.init, apiMajor, apiMinor, uintptr(unsafe.Pointer(p)), cfg, uintptr(unsafe.Pointer(&c.h)))); err != nil {
		return nil, fmt.Errorf("open UCX devices: %w", err)
	}
	return c, nil
}

// MemoryTypes is a bit mask of the kinds of memory the devices reach, by
// ucs_memory_type_t: host is 1, CUDA 2.
func (c *Context) MemoryTypes() uint64 {
	a := &contextAttr{mask: contextAttrMemoryTypes}
	if check(dynlib.Call(c.lib.fn.contextQuery, c.h, uintptr(unsafe.Pointer(a)))) != nil {
		return 0
	}
	return a.memoryTypes
}

// Close frees the context, after everything that was made of it.
func (c *Context) Close() {
	dynlib.Call(c.lib.fn.cleanup, c.h)
	c.h = 0
}

// Memory is memory that the devices may access.
type Memory struct {
	ctx *Context
	h   uintptr
	key []byte
}

// Map makes memory accessible. It must stay mapped, at its address, until Close.
func (c *Context) Map(mem []byte) (*Memory, error) {
	p := &mapParams{mask: mapParamAddress | mapParamLength, address: uintptr(unsafe.Pointer(&mem[0])), length: uint64(len(mem))}
	m := &Memory{ctx: c}
	if err := check(dynlib.Call(c.lib.fn.memMap, c.h, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&m.h)))); err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", len(mem), err)
	}
	var buf uintptr
	var size uint64
	if err := check(dynlib.Call(c.lib.fn.rkeyPack, c.h, m.h, uintptr(unsafe.Pointer(&buf)), uintptr(unsafe.Pointer(&size)))); err != nil {
		m.Close()
		return nil, fmt.Errorf("pack remote key: %w", err)
	}
	m.key = append([]byte(nil), bytesAt(buf, size)...)
	dynlib.Call(c.lib.fn.rkeyRelease, buf)
	return m, nil
}

// Key returns the remote key that a peer needs to access the memory.
func (m *Memory) Key() []byte { return m.key }

// Close ends the access of all devices.
func (m *Memory) Close() {
	if m.h != 0 {
		dynlib.Call(m.ctx.lib.fn.memUnmap, m.ctx.h, m.h)
		m.h = 0
	}
}
