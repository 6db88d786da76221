package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// roleEcho is a role that is in no package of the product.
const (
	roleEcho     cluster.Role = "echo"
	endpointEcho string       = "echo"
)

// echo answers with what it is asked. It notes what its worker has it do.
type echo struct {
	role.Base
	t *role.Term
	n *notes
}

// notes are of all terms of a role.
type notes struct {
	mu   sync.Mutex
	done []string
	busy bool // it has something in hand
}

func (n *notes) add(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done = append(n.done, what)
}

func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.done)
}

func (n *notes) setBusy(busy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy = busy
}

func (e *echo) Register(ctx context.Context) error {
	e.n.add("register")
	if err := e.t.PublishCard(ctx, nil); err != nil {
		return err
	}
	_, err := e.t.Serve(ctx, endpointEcho, e.t.Metered(e.serve))
	return err
}

func (e *echo) serve(_ context.Context, r *requestplane.Request, send func(any) error) error {
	var text string
	if err := r.Decode(&text); err != nil {
		return err
	}
	return send(text)
}

func (e *echo) Start(context.Context) { e.n.add("start") }
func (e *echo) Stop()                 { e.n.add("stop") }
func (e *echo) End()                  { e.n.add("end") }

func (e *echo) DrainSteps() []role.Step {
	return []role.Step{{
		Name:  cluster.DrainSequences,
		Begin: func(context.Context) { e.n.add("begin to empty") },
		Done: func(context.Context) (bool, error) {
			e.n.mu.Lock()
			defer e.n.mu.Unlock()
			return !e.n.busy, nil
		},
		End:  func() { e.n.add("empty no more") },
		Undo: func(context.Context) error { e.n.add("go on"); return nil },
	}}
}

// withEcho adds a role of the test to the table of a worker, as another package would be
// added.
func withEcho(w *world) *notes {
	n := &notes{}
	w.tune = func(k *Worker) {
		k.roles = maps.Clone(roles)
		k.roles[roleEcho] = role.Kind{Endpoint: endpointEcho, New: func(_ context.Context, t *role.Term) (role.Role, error) {
			return &echo{t: t, n: n}, nil
		}}
	}
	return n
}

// ask sends a text to a worker in the role, which must send it back.
func ask(t *testing.T, w *world, text string) {
	t.Helper()
	c := runtimetest.Client(t, w.c.Runtime(t, "asks "+text), roleEcho.Component(), endpointEcho)
	if err := c.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s, err := c.Call(t.Context(), c.Instances()[0], text, nil, text)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got string
	if err := s.Recv(t.Context(), &got); err != nil || got != text {
		t.Errorf("asked %q, got %q, %v", text, got, err)
	}
}

// Another role is a line in the table: its worker joins, serves, drains, goes back, takes
// another role and takes this one again, and ends, and nothing else knows of it.
func TestAnotherRole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := withEcho(w)
	r := w.start("worker-1", roleEcho)
	if got := n.all(); !slices.Equal(got, []string{"register", "start"}) {
		t.Errorf("joined by %q", got)
	}
	ask(t, w, "first")

	// A drain takes the role's step in its place, and undoes it.
	n.setBusy(true)
	r.drain(t)
	eventually(t, "the role empties itself", func() bool { return slices.Contains(n.all(), "begin to empty") && step(r) == cluster.DrainSequences })
	if err := r.Resume(t.Context(), r.Assignment()); err != nil {
		t.Fatal(err)
	}
	r.waitState(t, cluster.StateReady)
	if got, want := n.all(), []string{"register", "start", "stop", "begin to empty", "empty no more", "go on", "start"}; !slices.Equal(got, want) {
		t.Errorf("drained and taken back by %q, want %q", got, want)
	}
	ask(t, w, "second")

	// Another role, and this one again, each in a term of its own.
	n.setBusy(false)
	id := r.Status().InstanceID
	for _, to := range []cluster.Role{cluster.RoleDecode, roleEcho} {
		if err := r.Turn(t.Context(), r.as(to)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is a worker in the role "+string(to), func() bool {
			st := r.Status()
			return st.State == cluster.StateReady && st.Role == to
		})
		if now := r.Status().InstanceID; now == id {
			t.Errorf("it has the lease of the former term as %s", to)
		} else {
			id = now
		}
		if to == cluster.RoleDecode {
			p := prompt(seeded(t), 40)
			check(t, w.generate(t.Context(), "", request("a", p, 5)), p, 5)
			if got := n.all(); got[len(got)-1] != "end" {
				t.Errorf("the term was ended by %q", got)
			}
		}
	}
	ask(t, w, "third")
	r.drain(t)
	r.drained(t)
	if got := n.all(); got[len(got)-1] != "end" {
		t.Errorf("ended by %q", got)
	}
}

// A role that is not in the table is refused at once, and changes nothing.
func TestUnknownRole(t *testing.T) {
	w := newWorld(t)
	r := w.start("worker-1", cluster.RoleDecode)
	if err := r.Turn(t.Context(), r.as(roleEcho)); err == nil {
		t.Error("a worker takes a role that nobody has written")
	}
	if st := r.Status(); st.State != cluster.StateReady || st.Role != cluster.RoleDecode {
		t.Errorf("it is %s as %s", st.State, st.Role)
	}
	cfg := r.cfg
	cfg.Assignment.Role = roleEcho
	if err := New(cfg).Run(t.Context()); err == nil || errors.Is(err, ErrDrained) {
		t.Errorf("Run in an unknown role: %v", err)
	}
}

// The steps of a drain are those that statuses name, in their order, whatever the role.
func TestDrainStepsAreThoseOfStatuses(t *testing.T) {
	w := newWorld(t)
	for as := range roles {
		r := w.start("worker-"+string(as), as)
		var names []cluster.DrainStep
		for _, s := range r.term.Load().drainSteps() {
			names = append(names, s.Name)
		}
		if got := slices.Compact(names); !slices.Equal(got, cluster.DrainSteps) {
			t.Errorf("%s: %q, want %q", as, got, cluster.DrainSteps)
		}
	}
}
