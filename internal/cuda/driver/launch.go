package driver

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/dynctl/dynctl/internal/dynlib"
)

// Names in the list that passes all arguments of a kernel in one piece.
const (
	paramEnd    = 0
	paramBuffer = 1
	paramSize   = 2

	attributeOverlap = 6 // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
)

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	grid, block Dim
	sharedBytes uint32
	_           uint32
	stream      uintptr
	attributes  uintptr
	count       uint32
	_           uint32
}

// launchAttribute is CUlaunchAttribute.
type launchAttribute struct {
	id    uint32
	_     uint32
	value [64]byte
}

// launchBlock is all that a launch points to. The Go heap does not move it, and it names
// its own parts, so that one live pointer keeps everything.
type launchBlock struct {
	extra     [5]uintptr
	size      uint64
	config    launchConfig
	attribute launchAttribute
	args      [maxArgs]byte
}

var launchBlocks = sync.Pool{New: func() any { return new(launchBlock) }}

// LaunchKernel implements Driver.
func (d *CUDA) LaunchKernel(device int, l *Launch, stream uint64) error {
	if err := errors.Join(handle("stream", stream), handle("function", l.Function)); err != nil {
		return err
	}
	if n := len(l.Args.b); n > maxArgs {
		return fmt.Errorf("%w: %d bytes of arguments, at most %d", ErrInvalid, n, maxArgs)
	}
	if l.Overlap && d.fn.launchKernelEx == 0 {
		return missing("cuLaunchKernelEx")
	}
	if err := d.enter(device); err != nil {
		return err
	}
	defer leave()
	b := launchBlocks.Get().(*launchBlock)
	defer launchBlocks.Put(b)
	b.size = uint64(copy(b.args[:], l.Args.b))
	b.extra = [5]uintptr{paramBuffer, uintptr(unsafe.Pointer(&b.args)), paramSize, uintptr(unsafe.Pointer(&b.size)), paramEnd}
	defer runtime.KeepAlive(b)
	grid, block := l.Grid.orOne(), l.Block.orOne()
	if !l.Overlap {
		return d.call("cuLaunchKernel", device, dynlib.Call(d.fn.launchKernel, uintptr(l.Function),
			uintptr(grid.X), uintptr(grid.Y), uintptr(grid.Z), uintptr(block.X), uintptr(block.Y), uintptr(block.Z),
			uintptr(l.SharedBytes), uintptr(stream), 0, uintptr(unsafe.Pointer(&b.extra))))
	}
	b.attribute = launchAttribute{id: attributeOverlap}
	b.attribute.value[0] = 1
	b.config = launchConfig{
		grid: grid, block: block, sharedBytes: l.SharedBytes, stream: uintptr(stream),
		attributes: uintptr(unsafe.Pointer(&b.attribute)), count: 1,
	}
	return d.call("cuLaunchKernelEx", device, dynlib.Call(d.fn.launchKernelEx, uintptr(unsafe.Pointer(&b.config)), uintptr(l.Function), 0, uintptr(unsafe.Pointer(&b.extra))))
}
