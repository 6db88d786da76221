// Package kernel holds the inner loops of the cpu backend in assembly: products
// with packed weights, attention, norms and activations, for AVX2 and AVX-512
// of amd64 and NEON of arm64, products in bf16 for AVX512_BF16, AMX and FEAT_BF16, and
// products of bytes for AMX.
//
// Start with [Best] or [Parse], which choose a [Level], and [Pack], which brings
// weights into the order that [Level.Product] reads. Quantized weights are multiplied
// with [Block]s of activations, by [Level.ProductBlocks], many rows by
// [Level.ProductInt8] on tiles, or, as they lie in a file, by [Row].
//
// Kernels keep no state and allocate nothing; different goroutines may run them at
// the same time on memory of their own. A call takes some microseconds at most for
// the shapes of language models: the runtime cannot preempt assembly. Faults on the
// memory that they read are ordinary Go faults.
//
// The order of all sums is part of the interface. It is the same for all levels, but
// for products of activations in bf16 ([CallBF16]): the functions of portable.go and
// portable_bf16.go state it in Go, bit by bit. Products with quantized weights have the
// same bits in portable Go.
//
// It does not know models, and does not start goroutines.
package kernel

//go:generate go run ./gen
