package simulate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
)

// State is where a worker is in its life.
type State string

// States of workers.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Draining State = "draining" // gets nothing new and finishes what it has
	gone     State = "gone"
)

// start adds a worker that is ready after a time.
func (s *simulation) start(role cluster.Role, after time.Duration) error {
	if len(s.workers) >= s.MaxWorkers {
		return fmt.Errorf("simulate: more than %d workers", s.MaxWorkers)
	}
	s.lastID++
	w, err := s.newWorker(s.lastID, role)
	if err != nil {
		return err
	}
	s.workers = append(s.workers, w)
	if after == 0 {
		w.state, w.readySince = Ready, s.now
		return nil
	}
	w.state = Starting
	s.at(s.now+after, w.becomeReady)
	return nil
}

// becomeReady lets a worker that has started get requests.
func (w *worker) becomeReady() error {
	s := w.s
	if w.state != Starting {
		return nil // it was stopped before
	}
	w.over(Started)
	w.enter(Ready)
	w.readySince, w.flips = s.now, false
	if w.role == cluster.RolePrefill {
		return s.serveQueue()
	}
	waiting := s.stranded
	s.stranded = nil
	for _, j := range waiting {
		if err := j.route(); err != nil {
			return err
		}
	}
	return nil
}

// over notes the end of a change for the controller.
func (w *worker) over(kind ChangeKind) {
	if w.flips {
		kind = Flipped
	}
	if w.s.Controller != nil {
		w.s.window.changes = append(w.s.window.changes, Change{kind, w.role, w.s.now - w.ordered})
	}
}

func (w *worker) enter(state State) { w.state, w.since = state, w.s.now }

// drain has a worker finish what it has. Then it ends, or takes the other role.
func (w *worker) drain(flips bool) error {
	w.flips, w.ordered = flips, w.s.now
	if w.state == Starting {
		w.enter(Draining)
		return w.s.drained(w)
	}
	w.enter(Draining)
	return w.step()
}

// drained ends a worker that drains, once it has nothing left.
func (s *simulation) drained(w *worker) error {
	if w.load() > 0 || w.egress+w.ingress > 0 {
		return nil
	}
	if err := w.engine.Engine.Check(context.Background(), true); err != nil {
		return fmt.Errorf("simulate: drained worker %s: %w", w.name, err)
	}
	s.tally.retire(w)
	s.index.Drop(w.id)
	w.enter(gone)
	at := slices.Index(s.workers, w)
	s.workers = slices.Delete(s.workers, at, at+1)
	if !w.flips {
		w.over(Drained)
		return nil
	}
	// A worker that changes its role is a new instance with an empty cache.
	role := cluster.RolePrefill
	if w.role == role {
		role = cluster.RoleDecode
	}
	if err := s.start(role, max(1, profile.Seconds(w.profile.Overheads.Flip))); err != nil {
		return err
	}
	next := s.workers[len(s.workers)-1]
	next.flips, next.ordered = true, w.ordered
	return nil
}

// Action changes the fleet.
type Action struct {
	Role cluster.Role `json:"role"`
	// Workers is the number of workers that Role shall have; used unless Flip names one. More
	// of them start, or those with least to do drain.
	Workers int `json:"workers"`
	// Flip names a worker that shall drain and take Role.
	Flip string `json:"flip,omitempty"`
}

// Controller decides how many workers there are.
type Controller interface {
	// Tick is called each Config.Tick with what has happened since the last call, and returns
	// what shall change now. o is valid during the call.
	Tick(now time.Duration, o *Observation) []Action
}

// control calls the controller.
func (s *simulation) control() error {
	actions := s.Controller.Tick(s.now, s.observe())
	s.window.begin(s) // what actions do at once is of the next window
	for _, a := range actions {
		if err := s.act(a); err != nil {
			return err
		}
	}
	return nil
}

func (s *simulation) act(a Action) error {
	if !slices.Contains(roles, a.Role) {
		return fmt.Errorf("simulate: the controller names the role %q", a.Role)
	}
	if a.Flip != "" {
		return s.flip(a)
	}
	if a.Workers < 0 || a.Workers > s.MaxWorkers {
		return fmt.Errorf("simulate: the controller wants %d %s workers", a.Workers, a.Role)
	}
	s.want[a.Role] = a.Workers
	s.result.Actions = append(s.result.Actions, Acted{AtS: s.now.Seconds(), Action: a})
	var live []*worker
	for _, w := range s.workers {
		if w.role == a.Role && w.state != Draining {
			live = append(live, w)
		}
	}
	p := s.Profile
	if a.Role == cluster.RolePrefill {
		p = s.PrefillProfile
	}
	for range a.Workers - len(live) - s.coming(a.Role) {
		if err := s.start(a.Role, max(1, profile.Seconds(p.Overheads.Startup))); err != nil {
			return err
		}
	}
	// The last ones to start go first, then those with least to do.
	slices.SortStableFunc(live, func(a, b *worker) int {
		if x, y := a.state == Starting, b.state == Starting; x != y {
			if x {
				return -1
			}
			return 1
		}
		if d := a.load() - b.load(); d != 0 {
			return d
		}
		return int(b.id) - int(a.id)
	})
	for _, w := range live[:max(0, len(live)-a.Workers)] {
		if err := w.drain(false); err != nil {
			return err
		}
	}
	return nil
}

// coming counts the workers that drain to take a role.
func (s *simulation) coming(role cluster.Role) (n int) {
	for _, w := range s.workers {
		if w.state == Draining && w.flips && w.role != role {
			n++
		}
	}
	return n
}

func (s *simulation) flip(a Action) error {
	at := slices.IndexFunc(s.workers, func(w *worker) bool { return w.name == a.Flip })
	if at < 0 {
		return fmt.Errorf("simulate: the controller flips %q, which does not exist", a.Flip)
	}
	w := s.workers[at]
	if w.role == a.Role || w.state == Draining {
		return nil
	}
	s.want[w.role], s.want[a.Role] = s.want[w.role]-1, s.want[a.Role]+1
	s.result.Actions = append(s.result.Actions, Acted{AtS: s.now.Seconds(), Action: a})
	return w.drain(true)
}
