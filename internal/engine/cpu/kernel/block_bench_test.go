package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// BenchmarkProductBlocks multiplies rows with a panel of quantized weights that stays
// in the cache, as prefill does.
func BenchmarkProductBlocks(b *testing.B) {
	const cols = 1024
	r := rand.New(rand.NewPCG(1, 1))
	for name, product := range blockKernels() {
		for _, ty := range quantizedTypes {
			for _, m := range []int{1, 2, 4, blockRows} {
				b.Run(fmt.Sprintf("%s/%s/%d-rows", name, ty.name, m), func(b *testing.B) {
					panel := aligned(PanelBytes(ty.t, cols))
					src := quantizedRows(r, ty.t, Width, cols)
					Pack(ty.t, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
					out := make([]float32, m*Width)
					c := BlockCall{Panel: unsafe.Pointer(&panel[0]), Blocks: cols / BlockSize}
					c.Fetch(ty.t, 0, 2)
					for i := range m {
						c.Src[i], c.Dst[i] = &randomBlocks(r, cols/BlockSize)[0], &out[i*Width]
					}
					for b.Loop() {
						product(ty.t, m, &c)
					}
					b.ReportMetric(2*float64(m*Width*cols*b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
				})
			}
		}
	}
}

// BenchmarkStreamBlocks multiplies rows with quantized panels from memory, as decoding
// does.
func BenchmarkStreamBlocks(b *testing.B) {
	const cols, panels = 1024, 8192
	r := rand.New(rand.NewPCG(1, 1))
	for _, ty := range quantizedTypes {
		size := PanelBytes(ty.t, cols)
		data := aligned(panels * size)
		for i := range data {
			data[i] = byte(i)
		}
		for name, product := range blockKernels() {
			for _, m := range []int{1, 2, blockRows} {
				b.Run(fmt.Sprintf("%s/%s/%d-rows", name, ty.name, m), func(b *testing.B) {
					out := make([]float32, m*Width)
					c := BlockCall{Blocks: cols / BlockSize}
					for i := range m {
						c.Src[i], c.Dst[i] = &randomBlocks(r, cols/BlockSize)[0], &out[i*Width]
					}
					for b.Loop() {
						for p := 0; p < len(data); p += size {
							c.Panel = unsafe.Pointer(&data[p])
							c.Fetch(ty.t, 0, 1)
							product(ty.t, m, &c)
						}
					}
					b.ReportMetric(float64(len(data)*b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				})
			}
		}
	}
}

// BenchmarkQuantize brings a row of activations into blocks.
func BenchmarkQuantize(b *testing.B) {
	x := normals(rand.New(rand.NewPCG(1, 1)), 1024)
	dst := make([]Block, len(x)/BlockSize)
	for _, l := range Levels() {
		b.Run(l.String(), func(b *testing.B) {
			for b.Loop() {
				l.Quantize(dst, x)
			}
			b.ReportMetric(float64(len(x)*b.N)/b.Elapsed().Seconds()/1e9, "Gvalues/s")
		})
	}
}

// BenchmarkUnpackInt8 brings a part of a panel into the form of tiles, in the cache.
func BenchmarkUnpackInt8(b *testing.B) {
	if Best() < AVX512 {
		b.Skip("unpacking needs AVX-512")
	}
	const cols = int8Part * BlockSize
	r := rand.New(rand.NewPCG(1, 1))
	for _, ty := range quantizedTypes {
		b.Run(ty.name, func(b *testing.B) {
			src := quantizedRows(r, ty.t, Width, cols)
			panel, dst := aligned(PanelBytes(ty.t, cols)), aligned(int8Part*unpackedBytes)
			Pack(ty.t, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
			for b.Loop() {
				AMX.unpackInt8(ty.t, unsafe.Pointer(&dst[0]), unsafe.Pointer(&panel[0]), int8Part)
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N*int8Part), "ns/block")
		})
	}
}

// BenchmarkProductInt8 multiplies many rows with a panel of quantized weights on tiles.
func BenchmarkProductInt8(b *testing.B) {
	if !Best().Int8Tiles() {
		b.Skip("this machine has no AMX-INT8")
	}
	const blocks = 32
	r := rand.New(rand.NewPCG(1, 1))
	for _, ty := range quantizedTypes {
		for _, m := range []int{leastInt8, tileRows, 4 * tileRows, int8Rows} {
			b.Run(fmt.Sprintf("%s/%d-rows", ty.name, m), func(b *testing.B) {
				panel, out := aligned(PanelBytes(ty.t, blocks*BlockSize)), make([]float32, m*Width)
				src := quantizedRows(r, ty.t, Width, blocks*BlockSize)
				Pack(ty.t, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, blocks*BlockSize)
				const stride = blocks + 1
				x := randomBlocks(r, max(m, tileRows)*stride)
				c := CallInt8{Src: &x[0], Stride: stride * int(unsafe.Sizeof(Block{})), Panel: unsafe.Pointer(&panel[0]), Blocks: blocks, Scratch: new(ScratchInt8)}
				for i := range m {
					c.Dst = append(c.Dst, &out[i*Width])
				}
				for b.Loop() {
					AMX.ProductInt8(ty.t, &c)
				}
				b.ReportMetric(2*float64(m*Width*blocks*BlockSize*b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
			})
		}
	}
}

// BenchmarkRow unpacks rows of weights and multiplies them in Go.
func BenchmarkRow(b *testing.B) {
	const cols = 1024
	r := rand.New(rand.NewPCG(1, 1))
	x := randomBlocks(r, cols/BlockSize)
	for _, ty := range quantizedTypes {
		src := quantizedRows(r, ty.t, 1, cols)
		var row Row
		b.Run(ty.name+"/unpack", func(b *testing.B) {
			for b.Loop() {
				row.Unpack(ty.t, src)
			}
		})
		b.Run(ty.name+"/dot", func(b *testing.B) {
			var sum float32
			for b.Loop() {
				sum += row.Dot(x)
			}
			if sum == 1 {
				b.Log(sum)
			}
		})
	}
}

// BenchmarkPackBlocks packs quantized weights in the cache.
func BenchmarkPackBlocks(b *testing.B) {
	const cols = 1024
	r := rand.New(rand.NewPCG(1, 1))
	for _, ty := range quantizedTypes {
		b.Run(ty.name, func(b *testing.B) {
			src, dst := quantizedRows(r, ty.t, Width, cols), aligned(PanelBytes(ty.t, cols))
			for b.Loop() {
				Pack(ty.t, unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), Width, cols)
			}
			b.ReportMetric(float64(len(src)*b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
		})
	}
}
