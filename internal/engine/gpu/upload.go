package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// stageBytes is the size of one of the two pieces of pinned memory through which weights
// go: one is filled while the device reads the other.
const stageBytes = 8 << 20

// uploader copies tensors to the device.
type uploader struct {
	stream *device.Stream
	stages [2]stage
	next   int
}

type stage struct {
	mem  []byte
	read *device.Event // the device has read it
	used bool
}

// upload fills targets with bf16, and notes the types of matrices that had to be rounded.
func upload(ctx context.Context, d *Device, arena *device.Arena, targets []target, rounded map[string]bool) (err error) {
	scope, err := d.dev.NewScope()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scope.Close(context.WithoutCancel(ctx))) }()
	u := &uploader{}
	if u.stream, err = scope.NewStream(device.Patient); err != nil {
		return err
	}
	pinned, err := scope.Pinned(device.Weights, 2*stageBytes)
	if err != nil {
		return err
	}
	for i := range u.stages {
		s := &u.stages[i]
		if s.mem, err = pinned.Take(stageBytes); err != nil {
			return err
		}
		if s.read, err = scope.NewEvent(); err != nil {
			return err
		}
	}
	for i := range targets {
		t := &targets[i]
		memory, err := arena.Take(2 * t.elems())
		if err != nil {
			return err
		}
		*t.address = memory.Address
		for _, part := range t.parts {
			if len(part.Shape) > 1 && part.DType != safetensors.BF16 {
				rounded[string(part.DType)] = true
			}
			n := 2 * elems(part)
			if err := u.tensor(ctx, memory.Slice(0, n), part); err != nil {
				return fmt.Errorf("%s: %w", part.Name, err)
			}
			memory = memory.Slice(n, memory.Bytes-n)
		}
	}
	return nil // closing the scope waits for the copies
}

// tensor copies one tensor.
func (u *uploader) tensor(ctx context.Context, to device.Region, t model.Tensor) error {
	const values = stageBytes / 2
	size := int64(len(t.Data)) / elems(t)
	for from := int64(0); from < elems(t); from += values {
		n := min(values, elems(t)-from)
		s := &u.stages[u.next]
		u.next = 1 - u.next
		if s.used {
			if err := s.read.Wait(ctx); err != nil {
				return err
			}
		}
		if err := toBF16(s.mem[:2*n], t.Data[from*size:(from+n)*size], t.DType); err != nil {
			return err
		}
		if err := errors.Join(u.stream.Upload(to.Slice(2*from, 2*n), s.mem[:2*n]), u.stream.Record(s.read)); err != nil {
			return err
		}
		s.used = true
	}
	return nil
}

// toBF16 converts values, which are read from a mapped file: a fault there, of a file that
// became shorter, is an error.
func toBF16(to, from []byte, dtype safetensors.DType) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			fault, ok := r.(interface {
				runtime.Error
				Addr() uintptr
			})
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("read weights at address %#x: has the file changed?", fault.Addr())
		}
	}()
	le := binary.LittleEndian
	switch dtype {
	case safetensors.BF16:
		copy(to, from)
	case safetensors.F32:
		for i := 0; i < len(to); i += 2 {
			le.PutUint16(to[i:], safetensors.ToBF16(math.Float32frombits(le.Uint32(from[2*i:]))))
		}
	case safetensors.F16:
		for i := 0; i < len(to); i += 2 {
			le.PutUint16(to[i:], safetensors.ToBF16(safetensors.FromF16(le.Uint16(from[i:]))))
		}
	}
	return nil
}
