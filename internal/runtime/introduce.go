package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/ondemand"
)

// Introduced is what a runtime has published of the program that it belongs to. It follows
// the health of the endpoints.
type Introduced struct {
	d     *DistributedRuntime
	owned *Owned
	task  *ondemand.Task // publishes changes

	mu      sync.Mutex
	said    string // why the program does not work, by its own word
	program cluster.Program
}

// Introduce publishes a description of the program under the lease, until the runtime is
// closed.
func (d *DistributedRuntime) Introduce(ctx context.Context, p cluster.Program) (*Introduced, error) {
	i := &Introduced{d: d, program: p}
	i.program.StartedAt = time.Now()
	i.program.Since = i.program.StartedAt
	var err error
	i.owned, err = d.PutOwned(ctx, func(id cluster.InstanceID) string { return cluster.ProgramKey(d.cfg.Namespace, id) }, i.encode)
	if err != nil {
		return nil, fmt.Errorf("introduce %s: %w", p.Name, err)
	}
	i.task = ondemand.New(d.ctx, i.publish)
	d.mu.Lock()
	d.introduced = append(d.introduced, i)
	d.mu.Unlock()
	return i, nil
}

// Say notes why the program does not work; an empty reason means that it does.
func (i *Introduced) Say(reason string) {
	i.mu.Lock()
	i.said = reason
	i.mu.Unlock()
	i.task.Wake()
}

func (i *Introduced) encode(id cluster.InstanceID) []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.program.InstanceID = id
	body, _ := json.Marshal(i.program) // texts and times
	return body
}

// publish writes the description if the reason has changed.
func (i *Introduced) publish(ctx context.Context) {
	unhealthy := i.d.unhealthy()
	i.mu.Lock()
	reason := cmp.Or(i.said, unhealthy)
	changed := reason != i.program.Reason
	if changed {
		i.program.Reason, i.program.Since = reason, time.Now()
	}
	i.mu.Unlock()
	if changed {
		_ = i.owned.Update(ctx, i.encode) // the runtime keeps trying
	}
}

// unhealthy says which endpoint does not work, and why; empty if all do.
func (d *DistributedRuntime) unhealthy() string {
	worst := ""
	for name, h := range d.Health() {
		if why := name.Component + "/" + name.Name + ": " + h.Why; !h.Ready && (worst == "" || why < worst) {
			worst = why
		}
	}
	return worst
}

// healthChanged has the description of the program follow.
func (d *DistributedRuntime) healthChanged() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range d.introduced {
		i.task.Wake()
	}
}
