package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// weightNames are the types in the names of cases.
var weightNames = map[kernels.WeightType]string{kernels.BF16: "bf16", kernels.Q8_0: "q8", kernels.E4M3: "e4m3", kernels.E4M3Blocks: "e4m3b"}

// Weights allocates a matrix of values around 1 with its scales: those of eight bits have all
// codes there are, and scales that stand for nothing are not numbers.
func (l *Lab) Weights(kind kernels.WeightType, rows, in int) (weights, scales uint64) {
	if kind == kernels.BF16 {
		return l.Values(rows*in, 1), 0
	}
	size, scaleSize := kind.Bytes(rows, in)
	weights, data := l.Alloc(int(size))
	scales, by := l.Alloc(int(scaleSize))
	for i := range data {
		data[i] = number(kind, byte(l.IntN(256)))
	}
	if kind != kernels.Q8_0 { // numbers up to 448
		for i := range len(by) / 4 {
			binary.LittleEndian.PutUint32(by[4*i:], math.Float32bits((l.Float32()-0.5)/50))
		}
		return weights, scales
	}
	width := len(by) / 2 / rows
	for i := range rows * width { // numbers up to 128
		half := uint16(l.IntN(1<<10) | l.IntN(2)<<15 | []int{0, 7, 8, 9}[l.IntN(4)]<<10)
		if i%width >= in/32 {
			half = 0x7e00
		}
		binary.LittleEndian.PutUint16(by[2*i:], half)
	}
	return weights, scales
}

// number is a code, or zero instead of those that must not be.
func number(kind kernels.WeightType, code byte) byte {
	if kind != kernels.Q8_0 && code&0x7f == 0x7f {
		return 0
	}
	return code
}

// codeCases have every code once, in a row that is else zero: each is exactly its number, in
// the arithmetic of all kernels.
func codeCases() (all []Case) {
	const rows, in = 256, 64
	for _, kind := range []kernels.WeightType{kernels.Q8_0, kernels.E4M3, kernels.E4M3Blocks} {
		for _, tokens := range []int{1, 2, 4, 3, 65} {
			name, run := "gemv", (*kernels.Queue).GEMV
			if tokens == 3 || tokens > kernels.MaxGEMV {
				name, run = "gemm", (*kernels.Queue).GEMM
			}
			all = append(all, Case{
				Name: fmt.Sprintf("%s/codes,type=%s,tokens=%d", name, weightNames[kind], tokens),
				Prepare: func(l *Lab) func(q *kernels.Queue) error {
					codes, scales, ones := make([]byte, rows*in), make([]byte, 0, rows*4), make([]byte, 0, tokens*in*2)
					for row := range rows {
						codes[row*in+row%in] = number(kind, byte(row))
						if kind != kernels.Q8_0 {
							scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(1))
						} else {
							scales = append(scales, 0x00, 0x3c, 0x00, 0x3c) // halves
						}
					}
					for range tokens * in {
						ones = append(ones, 0x80, 0x3f)
					}
					o := kernels.MatMul{
						Out: l.Out("out", tokens*rows*4, Tolerance{Float: true}), X: l.Bytes(ones), W: l.Bytes(codes), Scales: l.Bytes(scales),
						Tokens: tokens, Rows: rows, In: in, Type: kind, Wide: true,
					}
					return func(q *kernels.Queue) error { return run(q, o) }
				},
			})
		}
	}
	return all
}
