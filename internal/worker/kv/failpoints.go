package kv

import "github.com/dynctl/dynctl/internal/failpoint"

// The steps of a writer at which a worker may be killed, as tests of whole clusters do.
// ../DESIGN.md has the states between them.
var (
	pointFirstWritten = failpoint.New("prefill.first-written") // the first blocks are there, more are due or not
	pointAllWritten   = failpoint.New("prefill.all-written")
)
