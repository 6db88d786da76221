package fake

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/ptx"
	"github.com/dynctl/dynctl/internal/lab/cuda/emulator"
)

// loaded are modules by their text: tests load the same ones again and again.
var loaded sync.Map

// loadPTX makes the kernels of a module ready for the emulator.
func loadPTX(image []byte) (*emulator.Module, error) {
	if m, ok := loaded.Load(string(image)); ok {
		return m.(*emulator.Module).Clone(), nil
	}
	name := "module.ptx"
	if found := entry.FindSubmatch(image); found != nil { // a module has no name of its own
		name = string(found[1]) + ".ptx"
	}
	parsed, err := ptx.Parse(name, bytes.TrimRight(image, "\x00"))
	if err != nil {
		return nil, err
	}
	m, err := emulator.Load(parsed)
	if err != nil {
		return nil, err
	}
	loaded.Store(string(image), m)
	return m.Clone(), nil
}

// emulate runs a kernel of PTX.
func (c *Call) emulate(k *emulator.Kernel) {
	memory := c.d.emulated(c.work.stream.device)
	err := k.Run(emulator.Launch{
		Grid: sizes(c.Grid), Block: sizes(c.Block), SharedBytes: int(c.SharedBytes), Args: c.args, Memory: memory,
		TensorMap: tensorMap, Seed: c.d.seed<<32 + c.work.at, // other orders for other launches
	})
	for _, m := range memory {
		m.Read.Runs(func(from, n int) { c.Read(m.Address+uint64(from), int64(n)) })
		m.Changed.Runs(func(from, n int) { c.Write(m.Address+uint64(from), int64(n)) })
	}
	for _, err := range unjoin(err) {
		r := driver.InvalidValue
		if f := (*emulator.Finding)(nil); errors.As(err, &f) {
			switch f.Check {
			case emulator.MemoryCheck:
				r = driver.IllegalAddress
				if m := c.d.find("", f.Address, 1); m != nil && m.gone {
					err = fmt.Errorf("%w: %s", err, absent(m))
				}
			case emulator.EndCheck:
				r = driver.LaunchTimeout
			}
		}
		c.mistake(r, "%v", err)
	}
}

// emulated is the memory that kernels of a device may use, as the emulator takes it.
func (d *Driver) emulated(device int) emulator.Allocations {
	var all emulator.Allocations
	for _, m := range d.mem {
		if m.gone || m.device != device && !d.devices[device].peers[m.device] || m.kind == "host memory" {
			continue
		}
		n := len(m.bytes)
		all = append(all, &emulator.Allocation{Address: m.address, Bytes: m.bytes, Written: m.written, Read: emulator.NewBitmap(n), Changed: emulator.NewBitmap(n)})
	}
	slices.SortFunc(all, func(a, b *emulator.Allocation) int {
		if a.Address < b.Address {
			return -1
		}
		return 1
	})
	return all
}

func sizes(d driver.Dim) [3]int { return [3]int{int(d.X), int(d.Y), int(d.Z)} }

// unjoin returns what errors.Join has put together.
func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// tensorMap decodes a map that a pretended driver has encoded.
func tensorMap(encoded []byte) (*emulator.TensorMap, error) {
	m, ok := DecodeTensorMap((*driver.EncodedTensorMap)(encoded))
	if !ok {
		return nil, errors.New("is no tensor map")
	}
	return &emulator.TensorMap{
		Address: m.Address, Value: 2, Sizes: []uint64{m.Columns, m.Rows}, Strides: []uint64{m.Stride}, Box: []uint32{m.BoxColumns, m.BoxRows}, Swizzle: 128,
	}, nil
}
