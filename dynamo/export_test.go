package dynamo

import "github.com/dynctl/dynctl/internal/runtime"

// Inner returns the runtime within, for the frontend of tests.
func (r *Runtime) Inner() *runtime.DistributedRuntime { return r.d }
