package kerneltest

import (
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// functions are the kernels by name. Their parameters are those of the sources.
var functions = map[string]func(c *fake.Call){
	"embed":         of(kernels.BF16, embed),
	"embed_q8":      of(kernels.Q8_0, embed),
	"rms_norm":      rmsNorm,
	"rope_append":   ropeAppend,
	"glu":           glu,
	"gemv_1":        of(kernels.BF16, matMul),
	"gemv_2":        of(kernels.BF16, matMul),
	"gemv_4":        of(kernels.BF16, matMul),
	"gemv_8":        of(kernels.BF16, matMul),
	"gemm":          of(kernels.BF16, matMul),
	"gemm_64":       of(kernels.BF16, matMul),
	"gemv_1_q8":     of(kernels.Q8_0, matMul),
	"gemv_2_q8":     of(kernels.Q8_0, matMul),
	"gemv_4_q8":     of(kernels.Q8_0, matMul),
	"gemm_q8":       of(kernels.Q8_0, matMul),
	"gemm_64_q8":    of(kernels.Q8_0, matMul),
	"gemv_1_e4m3":   of(kernels.E4M3, matMul),
	"gemv_1_e4m3b":  of(kernels.E4M3Blocks, matMul),
	"gemv_2_e4m3":   of(kernels.E4M3, matMul),
	"gemv_2_e4m3b":  of(kernels.E4M3Blocks, matMul),
	"gemv_4_e4m3":   of(kernels.E4M3, matMul),
	"gemv_4_e4m3b":  of(kernels.E4M3Blocks, matMul),
	"gemm_e4m3":     of(kernels.E4M3, matMul),
	"gemm_e4m3b":    of(kernels.E4M3Blocks, matMul),
	"gemm_64_e4m3":  of(kernels.E4M3, matMul),
	"gemm_64_e4m3b": of(kernels.E4M3Blocks, matMul),

	"gemm_sm90a_128x256": matMulTiles,
	"gemm_sm90a_128x128": matMulTiles,
	"gemm_sm90a_64x256":  matMulTiles,
	"gemm_sm90a_128x64":  matMulTiles,

	"gated_sm90a_128x256": gatedTiles,

	"route":                route,
	"plan_experts":         planExperts,
	"combine_experts":      combineExperts,
	"expert_gemm":          of(kernels.BF16, expertMatMul),
	"expert_gemm_16":       of(kernels.BF16, expertMatMul),
	"expert_gemm_q8":       of(kernels.Q8_0, expertMatMul),
	"expert_gemm_16_q8":    of(kernels.Q8_0, expertMatMul),
	"expert_gemm_e4m3":     of(kernels.E4M3, expertMatMul),
	"expert_gemm_e4m3b":    of(kernels.E4M3Blocks, expertMatMul),
	"expert_gemm_16_e4m3":  of(kernels.E4M3, expertMatMul),
	"expert_gemm_16_e4m3b": of(kernels.E4M3Blocks, expertMatMul),

	"decode_attention_64":   decodeAttention,
	"decode_attention_128":  decodeAttention,
	"decode_attention_256":  decodeAttention,
	"decode_attention_any":  decodeAttention,
	"decode_attention_i8":   decodeAttention,
	"decode_attention_join": joinAttention,
	"prefill_attention_64":  prefillAttention,
	"prefill_attention_128": prefillAttention,
	"prefill_attention_256": prefillAttention,
	"prefill_attention_any": prefillAttention,
	"prefill_attention_i8":  prefillAttention,

	"sum_ranks":   sumRanks,
	"copy_pieces": copyPieces,
	"sample":      sample,
}

// Kernels returns all kernels, with the resources that the assembler found for compute
// capability 9.0.
func Kernels() ([]fake.Kernel, error) {
	table, err := kernels.AllLimits()
	if err != nil {
		return nil, err
	}
	var all []fake.Kernel
	for _, l := range table {
		if l.Arch != "sm_90" && l.Arch != "sm_90a" || functions[l.Kernel] == nil {
			continue
		}
		all = append(all, fake.Kernel{Name: l.Kernel, Run: functions[l.Kernel], Resources: driver.Resources{
			Registers: l.Registers, LocalBytes: l.StackBytes, SharedBytes: l.SharedBytes, MaxThreads: l.Threads, BinaryArch: 90,
		}})
	}
	return all, nil
}

// read and write are views of device memory as n values.
func read[T any](c *fake.Call, address uint64, n int) []T {
	return view[T](c.Read(address, int64(n)*int64(size[T]())), n)
}

func write[T any](c *fake.Call, address uint64, n int) []T {
	return view[T](c.Write(address, int64(n)*int64(size[T]())), n)
}

func size[T any]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

func view[T any](b []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// at is the address of the i-th value behind another.
func at[T any](address uint64, i int) uint64 { return address + uint64(i*size[T]()) }
