package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/lab/cuda/kerneltest"
)

// compareCases are all small ones, then the large ones, of all kernels in turns: a run that is cut
// off has seen each of them in its smallest shapes.
func compareCases() (all []Case) {
	for _, large := range []bool{false, true} {
		var some []Case
		turn, of := map[string]int{}, map[string]int{} // by case, and by kernel
		for _, c := range kerneltest.Cases() {
			if c.Large == large {
				kernel, _, _ := strings.Cut(c.Name, "/")
				turn[c.Name] = of[kernel]
				of[kernel]++
				some = append(some, Case{Name: c.Name, run: func(ctx context.Context, r *rig) (finding, error) { return r.compare(ctx, c) }})
			}
		}
		slices.SortStableFunc(some, func(a, b Case) int { return turn[a.Name] - turn[b.Name] })
		all = append(all, some...)
	}
	return all
}

// tooLarge is why a rehearsal leaves a case out.
const tooLarge = "too large for a rehearsal"

// compare has the device and the functions in Go compute the same.
func (r *rig) compare(ctx context.Context, c kerneltest.Case) (f finding, err error) {
	if c.Large && r.spec.Small {
		return f, skipped(tooLarge)
	}
	want, err := expected(c)
	if err != nil {
		return f, fmt.Errorf("functions in Go: %w", err)
	}
	got, err := r.perform(ctx, c)
	if err != nil {
		return f, err
	}
	var errs []error
	for i, o := range got {
		if err := o.Differs(want[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.Name, err))
		}
	}
	return f, errors.Join(errs...)
}

// expected returns the outputs of the functions in Go.
func expected(c kerneltest.Case) ([]kerneltest.Output, error) {
	twin, err := kerneltest.NewTwin()
	if err != nil {
		return nil, err
	}
	l := kerneltest.NewLab(twin, c.Name)
	launch := c.Prepare(l)
	for _, err := range []error{l.Err(), launch(twin.Queue()), twin.Finish()} {
		if err != nil {
			return nil, err
		}
	}
	return l.Outputs, nil
}
