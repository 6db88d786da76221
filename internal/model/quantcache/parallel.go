package quantcache

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/model/mapped"
)

// inParallel calls do for 0 to n-1 with all processors, until one call fails or ctx
// ends, and returns the first error. worker tells calls apart that happen at once; it
// is below [workers]. A fault on a mapping is an error that matches
// [mapped.ErrChanged].
func inParallel(ctx context.Context, n int, do func(worker, i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range min(workers(), n) {
		wg.Go(func() {
			debug.SetPanicOnFault(true)
			defer func() {
				if r := recover(); r != nil {
					stop(mapped.FaultError(r))
				}
			}()
			for i := next.Add(1) - 1; int(i) < n && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := do(w, int(i)); err != nil {
					stop(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func workers() int { return runtime.GOMAXPROCS(0) }
