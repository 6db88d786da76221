package kerneltest

import (
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/fake"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// functions are the kernels by name. Their parameters are those of the sources.
var functions = map[string]func(c *fake.Call){
	"embed":       embed,
	"rms_norm":    rmsNorm,
	"rope_append": ropeAppend,
	"glu":         glu,
	"gemv_1":      matMul,
	"gemv_2":      matMul,
	"gemv_4":      matMul,
	"gemv_8":      matMul,
	"gemm":        matMul,
	"gemm_64":     matMul,

	"route":           route,
	"plan_experts":    planExperts,
	"expert_gemm":     expertMatMul,
	"expert_gemm_16":  expertMatMul,
	"combine_experts": combineExperts,

	"decode_attention_64":   decodeAttention,
	"decode_attention_128":  decodeAttention,
	"decode_attention_256":  decodeAttention,
	"decode_attention_join": joinAttention,
	"prefill_attention_64":  prefillAttention,
	"prefill_attention_128": prefillAttention,
	"prefill_attention_256": prefillAttention,

	"copy_pieces":   copyPieces,
	"adjust_logits": adjustLogits,
	"sample":        sample,
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
		if l.Arch != "sm_90" || functions[l.Kernel] == nil {
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
