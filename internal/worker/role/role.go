package role

import (
	"context"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// Kind is one line in the table of roles.
type Kind struct {
	// Endpoint is the endpoint that stands for the role: the model card is published
	// under it, and metrics name it.
	Endpoint string
	// New makes the role for one term. It may follow other workers; nobody reaches it yet.
	// ctx ends when work in hand must stop.
	New func(ctx context.Context, t *Term) (Role, error)
}

// Role does a worker's work for requests during one term. The worker calls the methods
// from one goroutine, except those of kv.Listener, which it calls from another one.
type Role interface {
	kv.Listener

	// Register serves the endpoints of the role and publishes the model card. ctx ends
	// when work in hand must stop.
	Register(ctx context.Context) error
	// Start begins to fetch work that comes without a call, such as that of a queue. ctx
	// ends when work in hand must stop. It is called again after Stop when a drain is
	// taken back.
	Start(ctx context.Context)
	// Stop fetches no more work. Work in hand goes on.
	Stop()

	// DrainSteps returns the steps that a drain takes for this role, beside those of every
	// worker. Those of a name come before the worker's own step of that name.
	DrainSteps() []Step
	// Why says why a sequence has not left a worker that drains, "" if it is about to.
	Why(sequence string) string
	// InHand lists the images that the role has in hand, at most limit, oldest first, and
	// counts all of them.
	InHand(limit int) ([]cluster.ImageWork, int)
	// Idle says what the role still has in hand, nil if nothing: a role whose drain is
	// complete has nothing.
	Idle() error

	// End waits for all that the role has begun. The engine has ended, or the drain is
	// complete. It closes nothing of the term.
	End()
}

// Step is one step of a drain. All functions may be nil. Begin and Done get a context that
// ends with the worker.
type Step struct {
	Name cluster.DrainStep
	// Begin begins the step.
	Begin func(ctx context.Context)
	// Done reports whether the step is complete; it is asked again and again. Without it
	// the step is complete once it has begun.
	Done func(ctx context.Context) (bool, error)
	// End ends what Begin has begun, when the drain is over or taken back.
	End func()
	// Undo takes the step back, after End.
	Undo func(ctx context.Context) error
}

// Base is a role that does nothing. Roles embed it for what they have no use for.
type Base struct{}

// Noticed implements kv.Listener.
func (Base) Noticed(string, protocol.PrefillNotice) {}

// PeerLost implements kv.Listener.
func (Base) PeerLost(string) {}

// Start implements Role.
func (Base) Start(context.Context) {}

// Stop implements Role.
func (Base) Stop() {}

// DrainSteps implements Role.
func (Base) DrainSteps() []Step { return nil }

// Why implements Role.
func (Base) Why(string) string { return "" }

// InHand implements Role.
func (Base) InHand(int) ([]cluster.ImageWork, int) { return nil, 0 }

// Idle implements Role.
func (Base) Idle() error { return nil }

// End implements Role.
func (Base) End() {}
