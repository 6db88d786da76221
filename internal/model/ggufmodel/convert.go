package ggufmodel

import (
	"encoding/binary"
	"math"
	"math/bits"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

// chunkBytes is about how much one goroutine makes at a time.
const chunkBytes = 1 << 20

// build makes the bytes of a tensor that is not the mapping itself. A fault on the
// mapping panics in the caller's goroutine, as reading the mapping does.
func (p *plan) build() []byte {
	shape := p.source.Shape
	if p.second != nil {
		return p.both()
	}
	rows := 1
	switch {
	case len(shape) == 1 && p.heads > 0: // a bias: one weight a row
		rows = shape[0]
	case len(shape) > 1:
		for _, d := range shape[:len(shape)-1] {
			rows *= d
		}
	}
	from := len(p.source.Data) / rows
	to := from
	if p.dequantize || p.minusOne {
		to = from / p.source.Type.BlockBytes() * p.source.Type.BlockWeights() * 4
	}
	// As float32, so that engines find it aligned.
	values := make([]float32, (rows*to+3)/4)
	if len(values) == 0 {
		return nil
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))[: rows*to : rows*to]
	inChunks(rows, max(chunkBytes/max(to, 1), 1), func(first, last int) {
		for r := first; r < last; r++ {
			source := p.source.Data[p.row(r, rows)*from:][:from]
			if p.dequantize || p.minusOne {
				p.floats(values[r*to/4:][:to/4], source)
			} else {
				copy(out[r*to:][:to], source)
			}
		}
	})
	return out
}

// both puts the images, of the last two dimensions, of two tensors by turns.
func (p *plan) both() []byte {
	n := len(p.source.Data) / max(p.source.Shape[0]*p.source.Shape[1], 1)
	values := make([]float32, (2*len(p.source.Data)+3)/4) // aligned
	if len(values) == 0 {
		return nil
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))[:0]
	for at := 0; at < len(p.source.Data); at += n {
		out = append(append(out, p.source.Data[at:at+n]...), p.second.Data[at:at+n]...)
	}
	return out[:len(out):len(out)]
}

// floats makes a row of float32, in the order of bytes that tensors have everywhere.
func (p *plan) floats(row []float32, source []byte) {
	if err := gguf.Dequantize(row, p.source.Type, source); err != nil {
		panic("ggufmodel: " + err.Error()) // plan asked whether it can
	}
	if p.minusOne {
		for i := range row {
			row[i]--
		}
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		for i, v := range row {
			row[i] = math.Float32frombits(bits.ReverseBytes32(math.Float32bits(v)))
		}
	}
}

// row is the row of the file that becomes row r. Converters write the two halves of
// a head by turns, so that neighbors rotate together; here they are apart again.
func (p *plan) row(r, rows int) int {
	if p.heads == 0 {
		return r
	}
	dim := rows / p.heads
	head, i := r/dim, r%dim
	return head*dim + 2*(i%(dim/2)) + i/(dim/2)
}

// inChunks calls do for runs of up to size of n rows, on all processors.
func inChunks(n, size int, do func(first, last int)) {
	var (
		wg    sync.WaitGroup
		once  sync.Once
		fault any
		next  = make(chan int)
	)
	for range min(runtime.GOMAXPROCS(0), (n+size-1)/size) {
		wg.Go(func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			for first := range next {
				func() {
					defer func() {
						if r := recover(); r != nil {
							once.Do(func() { fault = r })
						}
					}()
					do(first, min(first+size, n))
				}()
			}
		})
	}
	for first := 0; first < n; first += size {
		next <- first
	}
	close(next)
	wg.Wait()
	if fault != nil {
		panic(fault)
	}
}
