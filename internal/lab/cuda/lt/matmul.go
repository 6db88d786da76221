package lt

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/dynlib"
)

// Numbers of cublasLt.h and library_types.h.
const (
	typeF32  = 0  // CUDA_R_32F
	typeBF16 = 14 // CUDA_R_16BF

	computeF32 = 68 // CUBLAS_COMPUTE_32F

	descTransA     = 3 // CUBLASLT_MATMUL_DESC_TRANSA
	transposed     = 1 // CUBLAS_OP_T
	prefWorkspace  = 1 // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
	algorithmBytes = 64
)

// heuristic is cublasLtMatmulHeuristicResult_t.
type heuristic struct {
	algorithm [algorithmBytes]byte
	workspace uint64
	state     int32
	waves     float32
	_         [4]int32
}

// key identifies a plan.
type key struct {
	tokens, rows, in int
	wide             bool
}

// plan is a way to compute products of a shape.
type plan struct {
	desc, x, w, out uintptr
	best            heuristic
}

// GEMM puts a product into a stream. It returns driver.ErrInvalid for what cuBLASLt is not
// asked for here, such as a bias, or weights of eight bits.
func (h *Handle) GEMM(o kernels.MatMul, stream uint64) error {
	if o.Type != kernels.BF16 || o.Bias != 0 || o.Rows < 1 || o.In < 8 || o.In%8 != 0 || o.Tokens < 0 || o.Out == 0 || o.X == 0 || o.W == 0 || (o.Out|o.X|o.W)%16 != 0 {
		return fmt.Errorf("%w: a product of %d tokens with %d rows of %d values", driver.ErrInvalid, o.Tokens, o.Rows, o.In)
	}
	if o.Tokens == 0 {
		return nil
	}
	p, err := h.plan(key{o.Tokens, o.Rows, o.In, o.Wide})
	if err != nil {
		return fmt.Errorf("cuBLASLt: a product of %d tokens with %d rows of %d values: %w", o.Tokens, o.Rows, o.In, err)
	}
	one, zero := float32(1), float32(0)
	return check("cublasLtMatmul", dynlib.Call(h.lib.fn.matmul, h.handle, p.desc, uintptr(unsafe.Pointer(&one)), uintptr(o.W), p.w, uintptr(o.X), p.x,
		uintptr(unsafe.Pointer(&zero)), uintptr(o.Out), p.out, uintptr(o.Out), p.out, uintptr(unsafe.Pointer(&p.best.algorithm)), uintptr(h.workspace), uintptr(h.bytes), uintptr(stream)))
}

// plan finds the way that the library deems best for a shape, once.
func (h *Handle) plan(k key) (*plan, error) {
	if p := h.plans[k]; p != nil {
		return p, nil
	}
	p := &plan{}
	if err := h.describe(p, k); err != nil {
		return nil, errors.Join(err, p.close(h.lib))
	}
	h.plans[k] = p
	return p, nil
}

// describe says what is multiplied. Matrices of the library lie by columns: row-major ones
// are transposed for it, and so the product is that of w, transposed, with x.
func (h *Handle) describe(p *plan, k key) error {
	fn := &h.lib.fn
	outType := uintptr(typeBF16)
	if k.wide {
		outType = typeF32
	}
	layout := func(to *uintptr, kind uintptr, rows, columns int) error {
		return check("cublasLtMatrixLayoutCreate", dynlib.Call(fn.layoutCreate, uintptr(unsafe.Pointer(to)), kind, uintptr(rows), uintptr(columns), uintptr(rows)))
	}
	transpose := int32(transposed)
	if err := check("cublasLtMatmulDescCreate", dynlib.Call(fn.descCreate, uintptr(unsafe.Pointer(&p.desc)), computeF32, typeF32)); err != nil {
		return err
	}
	if err := errors.Join(
		check("cublasLtMatmulDescSetAttribute", dynlib.Call(fn.descSet, p.desc, descTransA, uintptr(unsafe.Pointer(&transpose)), unsafe.Sizeof(transpose))),
		layout(&p.w, typeBF16, k.in, k.rows), layout(&p.x, typeBF16, k.in, k.tokens), layout(&p.out, outType, k.rows, k.tokens),
	); err != nil {
		return err
	}
	var preference uintptr
	if err := check("cublasLtMatmulPreferenceCreate", dynlib.Call(fn.preferenceCreate, uintptr(unsafe.Pointer(&preference)))); err != nil {
		return err
	}
	defer dynlib.Call(fn.preferenceDestroy, preference)
	bytes := uint64(h.bytes)
	if err := check("cublasLtMatmulPreferenceSetAttribute", dynlib.Call(fn.preferenceSet, preference, prefWorkspace, uintptr(unsafe.Pointer(&bytes)), unsafe.Sizeof(bytes))); err != nil {
		return err
	}
	var found int32
	err := check("cublasLtMatmulAlgoGetHeuristic", dynlib.Call(fn.heuristic, h.handle, p.desc, p.w, p.x, p.out, p.out, preference, 1,
		uintptr(unsafe.Pointer(&p.best)), uintptr(unsafe.Pointer(&found))))
	if err == nil && found < 1 {
		err = errors.New("cuBLASLt has no algorithm for it")
	}
	if err == nil && p.best.state != 0 {
		err = Status(p.best.state)
	}
	return err
}

func (p *plan) close(l *Library) error {
	var errs []error
	for _, layout := range []uintptr{p.x, p.w, p.out} {
		if layout != 0 {
			errs = append(errs, check("cublasLtMatrixLayoutDestroy", dynlib.Call(l.fn.layoutDestroy, layout)))
		}
	}
	if p.desc != 0 {
		errs = append(errs, check("cublasLtMatmulDescDestroy", dynlib.Call(l.fn.descDestroy, p.desc)))
	}
	return errors.Join(errs...)
}
