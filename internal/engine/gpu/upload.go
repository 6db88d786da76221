package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/model/mapped"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// stageBytes is the size of each of the two pinned buffers for weights. One is filled
// while the device reads the other.
const stageBytes = 8 << 20

// uploader copies tensors to the device.
type uploader struct {
	stream *device.Stream
	stages [2]stage
	next   int
}

type stage struct {
	mem  []byte
	read *device.Event // the device has read the buffer
	used bool
}

// upload fills targets.
func upload(ctx context.Context, on *unit, arena *device.Arena, targets []target) (err error) {
	scope, err := on.dev.NewScope()
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
		if err := u.target(ctx, &targets[i], arena); err != nil {
			return err
		}
	}
	return nil // closing the scope waits for the copies
}

// target allocates memory for a target and fills it.
func (u *uploader) target(ctx context.Context, t *target, arena *device.Arena) (err error) {
	var regions [2]device.Region // of weights and scales
	for i, n := range pair(t.bytes()) {
		if n == 0 {
			continue
		}
		if regions[i], err = arena.Take(n); err != nil {
			return err
		}
	}
	if t.vector != nil {
		*t.vector = regions[0].Address
	} else {
		*t.matrix = matrix{regions[0].Address, regions[1].Address, t.kind}
	}
	for _, part := range t.parts {
		if err := u.tensor(ctx, t, &part, &regions); err != nil {
			return fmt.Errorf("%s: %w", part.Name, err)
		}
	}
	return nil
}

func pair(a, b int64) [2]int64 { return [2]int64{a, b} }

// tensor copies the loaded part of one tensor to the front of the regions, and cuts that
// off.
func (u *uploader) tensor(ctx context.Context, t *target, part *part, to *[2]device.Region) error {
	rows, kind := part.rows.n, t.kind
	most := max(1, stageBytes/int(sum(kind.Bytes(1, t.in))))
	for from := 0; from < rows; from += most {
		n := min(most, rows-from)
		sizes := pair(kind.Bytes(n, t.in))
		if sum(sizes[0], sizes[1]) > stageBytes {
			return fmt.Errorf("a row of %d values does not fit into %d bytes", t.in, stageBytes)
		}
		s, err := u.stage(ctx)
		if err != nil {
			return err
		}
		weights, scales := s.mem[:sizes[0]], s.mem[sizes[0]:][:sizes[1]]
		if err := part.convert(weights, scales, from, n, kind); err != nil {
			return err
		}
		for i, host := range [2][]byte{weights, scales} {
			if len(host) == 0 {
				continue
			}
			if err := u.stream.Upload(to[i].Slice(0, sizes[i]), host); err != nil {
				return err
			}
			to[i] = to[i].Slice(sizes[i], to[i].Bytes-sizes[i])
		}
		if err := u.stream.Record(s.read); err != nil {
			return err
		}
		s.used = true
	}
	return nil
}

func sum(a, b int64) int64 { return a + b }

// stage returns a pinned buffer that the device has read.
func (u *uploader) stage(ctx context.Context) (*stage, error) {
	s := &u.stages[u.next]
	u.next = 1 - u.next
	if !s.used {
		return s, nil
	}
	return s, s.read.Wait(ctx)
}

// convert converts n of the loaded rows to their form on the device. It reads a mapped
// file: a fault there is an error that matches [mapped.ErrChanged].
func (p *part) convert(to, scales []byte, from, n int, kind kernels.WeightType) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read weights: %w", mapped.FaultError(r))
		}
	}()
	switch {
	case kind == kernels.E4M3 || kind == kernels.E4M3Blocks:
		return p.fp8(to, scales, from, n)
	case p.DType == safetensors.F8_E4M3:
		return p.widened(to, from, n)
	}
	rowBytes := len(p.Data) / (elems(p.Tensor) / p.width)
	data := p.Data[(p.rows.from+from)*rowBytes:][:n*rowBytes]
	if p.columns.n == p.width {
		return convert(to, scales, data, p.DType, p.width)
	}
	// Blocks of weights are never divided, so bytes divide as values do.
	skip, own := rowBytes*p.columns.from/p.width, rowBytes*p.columns.n/p.width
	for i := range n {
		w, s := to[len(to)/n*i:][:len(to)/n], scales[len(scales)/n*i:][:len(scales)/n]
		if err := convert(w, s, data[i*rowBytes+skip:][:own], p.DType, p.columns.n); err != nil {
			return err
		}
	}
	return nil
}

// fp8 copies the codes of rows, and gives each row its own scales: one, or one for each
// [kernels.E4M3Columns] weights.
func (p *part) fp8(to, scales []byte, from, n int) error {
	own := make([]float32, p.Scales.Across)
	in, width := p.columns.n, len(scales)/4/n
	block := p.columns.from / kernels.E4M3Columns
	for i := range n {
		row := p.rows.from + from + i
		codes := p.Data[row*p.width+p.columns.from:][:in]
		if at := slices.IndexFunc(codes, safetensors.E4M3IsNaN); at >= 0 {
			return fmt.Errorf("weight %d of row %d is code %#02x: %w", p.columns.from+at, row, codes[at], safetensors.ErrNotANumber)
		}
		copy(to[i*in:], codes)
		if err := p.Scales.At(own, row); err != nil {
			return err
		}
		for b := range width {
			binary.LittleEndian.PutUint32(scales[4*(i*width+b):], math.Float32bits(own[min(block+b, len(own)-1)]))
		}
	}
	return nil
}

// widened converts rows of fp8 to bf16.
func (p *part) widened(to []byte, from, n int) error {
	row, w := make([]float32, p.width), safetensors.NewWidener(p.Tensor)
	for i := range n {
		if err := w.Row(row, p.rows.from+from+i); err != nil {
			return err
		}
		for c, v := range row[p.columns.from:][:p.columns.n] {
			binary.LittleEndian.PutUint16(to[2*(i*p.columns.n+c):], safetensors.ToBF16(v))
		}
	}
	return nil
}

// convert converts whole rows to their form on the device.
func convert(to, scales, from []byte, dtype safetensors.DType, in int) error {
	le := binary.LittleEndian
	switch dtype {
	case safetensors.BF16:
		copy(to, from)
	case safetensors.Q8_0:
		return kernels.SplitQ8_0(to, scales, from, in)
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
