package worker

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// Worker is one worker. New makes it, Run takes it through its life.
type Worker struct {
	cfg       Config
	log       *slog.Logger
	waits     waits
	roles     map[cluster.Role]role.Kind
	board     *board
	meters    *meters
	events    *kvEvents
	encodings *encodings
	orders    chan order // of the agent, for Run

	// assigned is the present assignment: a worker's role may change while it runs.
	assigned atomic.Pointer[cluster.Assignment]
	// term is the present term, nil before Run has a lease. A change of role replaces it.
	term atomic.Pointer[term]
	// core stays over all terms; nil before it is loaded.
	core atomic.Pointer[loadedCore]
}

// waits holds the limits of a worker's waits. They are shorter in tests.
type waits struct {
	proof     time.Duration // that nobody accesses blocks under a ticket
	routers   time.Duration // to acknowledge that the worker leaves
	grace     time.Duration // for requests that were routed here just before that
	poll      time.Duration // between two looks of a drain
	handovers role.Limits
}

// New returns a worker for an assignment.
func New(cfg Config) *Worker {
	a := cfg.Assignment
	w := &Worker{
		cfg: cfg,
		log: cfg.Log.With("worker", a.Name),
		waits: waits{
			proof: kv.DefaultProof, routers: acknowledgeTimeout, grace: drainGrace, poll: drainPoll,
			handovers: role.DefaultLimits(),
		},
		roles: roles,
		board: newBoard(cluster.WorkerStatus{
			Name: a.Name, Role: a.Role, Model: a.Model.Name, Node: cfg.Node, Device: a.Device,
			State: cluster.StatePending, StartedAt: time.Now(), Restarts: cfg.Restarts,
			Generation: a.Generation,
		}),
		meters: newMeters(cfg),
		orders: make(chan order),
	}
	w.events = newKVEvents(w.publishKVEvents)
	w.encodings = newEncodings(w.publishEncodings)
	w.assigned.Store(&a)
	return w
}

// Name is the worker's name.
func (w *Worker) Name() string { return w.cfg.Assignment.Name }

// Assignment returns the worker's present assignment: the one it was started with, or the
// latest one it took over.
func (w *Worker) Assignment() cluster.Assignment { return *w.assigned.Load() }

// Role is the worker's role at present.
func (w *Worker) Role() cluster.Role { return w.assigned.Load().Role }

func (w *Worker) subject(topic string) string {
	return events.Subject(w.cfg.Namespace, w.Role().Component(), topic)
}

// ErrDrained is returned by Run after a drain has ended: everything is released.
var ErrDrained = errors.New("drained")
