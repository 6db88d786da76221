package gpucheck

import (
	"context"
	"errors"

	"github.com/dynctl/dynctl/internal/cuda/device"
	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// job is a case of the phase measure while its operands are made.
type job struct {
	*rig
	ctx    context.Context
	scope  *device.Scope
	random *random
	q      *kernels.Queue
	err    error // the first ones of what makes memory
}

// work is the operation that a job measures.
type work struct {
	op func(i int) error // the i-th iteration
	// What each iteration moves and computes at least.
	bytes, operations float64
}

// job measures what prepare says.
func (r *rig) job(ctx context.Context, prepare func(j *job) work) (f finding, err error) {
	m, err := r.randomMemory(ctx)
	if err != nil {
		return f, unfit(err)
	}
	err = r.scoped(ctx, func(s *device.Scope) error {
		j := &job{rig: r, ctx: ctx, scope: s, random: m, q: r.queue(ctx)}
		w := prepare(j)
		if j.err != nil {
			return unfit(j.err)
		}
		f, err = r.measure(ctx, s, w.op)
		f.cost(r.spec.Rates, w.bytes, w.operations)
		return err
	})
	return f, err
}

// address keeps the error of what makes memory.
func (j *job) address(at uint64, err error) uint64 {
	j.err = errors.Join(j.err, err)
	return at
}

// in is memory that is read, out memory that is written; ints and sent are uploaded.
func (j *job) in(bytes int) uint64   { return j.address(j.random.input(int64(bytes))) }
func (j *job) out(bytes int) uint64  { return j.address(output(j.scope, int64(bytes))) }
func (j *job) ints(v []int32) uint64 { return j.address(j.int32s(j.ctx, j.scope, v)) }
func (j *job) sent(b []byte) uint64  { return j.address(j.upload(j.ctx, j.scope, b)) }

// matrix is the i-th of several.
func (j *job) matrix(bytes, i int) (uint64, error) { return j.random.weights(int64(bytes), i) }

// n is a number of things in the shapes that are measured.
func (j *job) n(count int) int { return shrunk(count, j.spec.Small) }

func (j *job) model(s shape) shape {
	if j.spec.Small {
		return s.small()
	}
	return s
}
