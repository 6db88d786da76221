package doctor

import (
	"context"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/human"
)

// check is one question; several findings may come of it.
type check struct {
	name, group string
	run         func(context.Context) judge.Finding
}

// examine runs checks side by side, each with a deadline of its own.
func examine(ctx context.Context, timeout time.Duration, checks []check) []judge.Finding {
	out := make([]judge.Finding, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			begin := time.Now()
			out[i] = c.run(ctx)
			out[i].Name, out[i].Group, out[i].TookMS = c.name, c.group, human.Milliseconds(time.Since(begin))
		})
	}
	wg.Wait()
	return out
}
