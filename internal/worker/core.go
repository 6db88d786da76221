package worker

import (
	"context"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/runtime"
)

// core is the part of a worker that stays over all its terms: what computes. It is the
// built-in engine with its KV plane, or a server of an engine that others wrote.
type core interface {
	// run computes until ctx ends or it breaks.
	run(ctx context.Context) error
	// begin gives a term its duty, and what that needs. forget breaks off what the duty of a
	// former term had with others.
	begin(ctx context.Context, t *term) error
	forget(t *term)

	// model describes the model: the card without what depends on the worker, and the
	// contents of its files by name.
	model() (cluster.ModelCard, map[string][]byte)
	// describe adds limits and the properties of the KV to a card.
	describe(card *cluster.ModelCard)
	// figures are the load figures of a worker with this role.
	figures(as cluster.Role) cluster.WorkerStats
	// canary probes whether it computes; nil if something else watches that.
	canary(check HealthCheck) *runtime.Canary
	// agent is the NIXL agent, nil without one.
	agent() *nixl.Agent

	// stopAdmission refuses new work, until resumeAdmission.
	stopAdmission(ctx context.Context) error
	resumeAdmission(ctx context.Context) error
	// open lists what is computed for requests, at most limit of it, and counts all.
	open(ctx context.Context, limit int) ([]cluster.OpenSequence, int, error)
	// awaited counts the KV that it waits for. moving counts the KV that is just being moved
	// to it, and from it or held for others.
	awaited() int
	moving(ctx context.Context) (in, out int)

	// sleeper is what can sleep between two terms.
	sleeper() sleeper
	// clear forgets the prefix cache and returns how many blocks that were.
	clear(ctx context.Context) (int, error)
	// resident lists the blocks in the prefix cache; it calls at when it looks.
	resident(ctx context.Context, at func()) ([]uint64, error)
	activity(ctx context.Context, limit int) (cluster.Activity, error)
	// server describes the server of an engine that others wrote, nil without one.
	server() *cluster.ServerStatus
	// paths tells how it reaches others over NIXL.
	paths(peer string) []cluster.Path
}

// loadedCore is a core behind an atomic pointer.
type loadedCore struct{ core }

// sleeper puts what computes to sleep, and wakes it; see [served.Server].
type sleeper interface {
	CanSleep(ctx context.Context, level int) error
	Sleep(ctx context.Context, level int) error
	Wake(ctx context.Context, level int) error
	Asleep(ctx context.Context) (bool, error)
	Turned() <-chan struct{}
}
