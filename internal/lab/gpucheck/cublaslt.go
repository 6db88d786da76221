package gpucheck

import (
	"context"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/lt"
)

// library is cuBLASLt on the device, or why there is none.
type library struct {
	handle *lt.Handle
	err    error
}

// cublasLt opens the library once.
func (r *rig) cublasLt(ctx context.Context) (*lt.Handle, error) {
	if r.spec.Pretended {
		return nil, skipped("no cuBLASLt in a rehearsal")
	}
	if r.library == nil {
		r.library = &library{}
		r.library.handle, r.library.err = r.openCublasLt(ctx)
	}
	return r.library.handle, r.library.err
}

func (r *rig) openCublasLt(ctx context.Context) (h *lt.Handle, err error) {
	l, err := lt.Open(r.spec.CublasLt)
	if err != nil {
		return nil, skipped(err.Error())
	}
	workspace, err := r.dev.Arena(device.Workspace, lt.WorkspaceBytes)
	if err != nil {
		return nil, unfit(err)
	}
	err = r.current(ctx, func() error {
		h, err = l.NewHandle(workspace.All().Address, lt.WorkspaceBytes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name(), err)
	}
	r.about.CublasLt = fmt.Sprintf("%d", l.Version())
	return h, nil
}

// current runs f on a thread on which the context of the device is current: every call of
// the driver leaves it there.
func (r *rig) current(ctx context.Context, f func() error) error {
	return r.dev.Run(ctx, func() error {
		if _, _, err := r.drv.MemGetInfo(r.dev.Index()); err != nil {
			return err
		}
		return f()
	})
}

// cublasLtGEMM is a product by the library.
func (j *job) cublasLtGEMM(o kernels.MatMul) error {
	h, err := j.cublasLt(j.ctx)
	if err != nil {
		return err
	}
	return j.current(j.ctx, func() error { return h.GEMM(o, j.stream.Handle()) })
}

// measurePeak measures what arithmetic can do at best, by a large product.
func measurePeak(ctx context.Context, r *rig) (finding, error) {
	if _, err := r.cublasLt(ctx); err != nil {
		return finding{}, err
	}
	const n = 8192
	f, err := r.job(ctx, func(j *job) work {
		o := kernels.MatMul{Out: j.out(2 * n * n), X: j.in(2 * n * n), Tokens: n, Rows: n, In: n}
		return work{op: func(i int) (err error) {
			o := o
			if o.W, err = j.matrix(2*n*n, i); err != nil {
				return err
			}
			return j.cublasLtGEMM(o)
		}}
	})
	f.rate(2*n*n*n/1e12, "TFLOP/s")
	return f, err
}

// closeLibrary gives the library back, whose products have ended.
func (r *rig) closeLibrary(ctx context.Context) error {
	if r.library == nil || r.library.handle == nil {
		return nil
	}
	return r.current(ctx, r.library.handle.Close)
}

// cublasName and torchName are the cases of others for one of ours, which has several
// kernels for products.
func cublasName(name string) string {
	_, of, _ := strings.Cut(name, "/")
	return "cublaslt/" + of
}

func torchName(name string) string {
	if of, is := strings.CutPrefix(name, "gemv/"); is {
		name = "gemm/" + of
	}
	return otherPhase + "/" + name
}
