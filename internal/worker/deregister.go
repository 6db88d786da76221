package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/worker/role"
)

const (
	// drainGrace is the time for which a worker that left discovery still accepts requests
	// that were routed to it just before.
	drainGrace = 100 * time.Millisecond
	// acknowledgeTimeout bounds the wait for routers to acknowledge that a worker is gone. One
	// that has not by then is named; what it still sends is refused, and goes elsewhere.
	acknowledgeTimeout = 3 * time.Second
	// acknowledgeRetry is the pause after a failed call before a router is asked again.
	acknowledgeRetry = 50 * time.Millisecond
	// unacknowledgedNames limits the routers named that have not answered.
	unacknowledgedNames = 10
)

// leaveDiscovery is the first step of a drain: the worker leaves discovery, and all routers
// acknowledge that they choose it no more.
func (t *term) leaveDiscovery() role.Step {
	var left time.Time
	return role.Step{
		Name: cluster.DrainDiscovery,
		Begin: func(ctx context.Context) {
			left = time.Now()
			t.leave(ctx)
			t.departure = announceDeparture(ctx, t)
		},
		Done: func(context.Context) (bool, error) {
			return t.departure.ended() && time.Since(left) >= t.waits.grace, nil
		},
		End: func() {
			t.departure.stop()
			t.departure = nil
		},
		Undo: t.rejoin,
	}
}

// departure asks all routers, which are the frontends, to acknowledge that they choose a
// worker no more that has left discovery.
type departure struct {
	t      *term
	id     cluster.InstanceID // of the worker
	cancel context.CancelFunc
	over   chan struct{} // closed when all have acknowledged, or the time is up

	mu     sync.Mutex
	asked  int
	silent map[cluster.InstanceID]string // those that have not answered, with the names of their nodes
}

// announceDeparture begins; the caller must stop it.
func announceDeparture(ctx context.Context, t *term) *departure {
	// A router learns from the store who has left: while that is silent it has no answer.
	ctx, done := t.drt.Store().WhileAnswering(ctx)
	ctx, cancel := context.WithTimeout(ctx, t.waits.routers)
	d := &departure{t: t, id: t.ID(), cancel: cancel, over: make(chan struct{}), silent: map[cluster.InstanceID]string{}}
	go func() {
		defer close(d.over)
		defer done()
		defer cancel()
		d.run(ctx)
	}()
	return d
}

// stop ends the calls and waits for them. It does nothing to a departure that has not begun.
func (d *departure) stop() {
	if d != nil {
		d.cancel()
		<-d.over
	}
}

// ended reports whether there is nothing left to wait for.
func (d *departure) ended() bool {
	select {
	case <-d.over:
		return true
	default:
		return false
	}
}

func (d *departure) run(ctx context.Context) {
	routers, err := runtime.NewClient(ctx, d.t.drt, cluster.ComponentFrontend, cluster.EndpointDeparted)
	if err != nil {
		d.t.log.Warn("could not ask routers whether they know that the worker leaves", "error", err)
		return
	}
	defer routers.Close()
	all := routers.All()
	d.mu.Lock()
	d.asked = len(all)
	for _, inst := range all {
		d.silent[inst.InstanceID] = inst.Node
	}
	d.mu.Unlock()
	var wg sync.WaitGroup
	for _, inst := range all {
		wg.Go(func() { d.ask(ctx, routers, inst) })
	}
	wg.Wait()
	if asked, acknowledged, silent := d.progress(); acknowledged < asked {
		d.t.log.Warn("routers have not acknowledged that the worker leaves", "routers", asked, "acknowledged", acknowledged, "silent", silent)
	}
}

// ask asks one router until it answers, leaves discovery itself or the time is up.
func (d *departure) ask(ctx context.Context, routers *runtime.Client, inst cluster.Instance) {
	for {
		err := d.call(ctx, routers, inst)
		if err == nil {
			d.settle(inst.InstanceID, true)
			return
		}
		select {
		case <-ctx.Done():
			d.t.log.Debug("no acknowledgement from a router", "node", inst.Node, "error", err)
			return
		case <-time.After(acknowledgeRetry):
		}
		if !slices.ContainsFunc(routers.All(), func(i cluster.Instance) bool { return i.InstanceID == inst.InstanceID }) {
			d.settle(inst.InstanceID, false)
			return
		}
	}
}

func (d *departure) call(ctx context.Context, routers *runtime.Client, inst cluster.Instance) error {
	stream, err := routers.Call(ctx, inst, "departed-"+d.id.String(), nil, protocol.DepartedRequest{InstanceID: d.id})
	if err != nil {
		return err
	}
	defer stream.Close()
	var answer protocol.Departed
	return stream.Recv(ctx, &answer)
}

// settle takes note of a router that has acknowledged, or is none any more.
func (d *departure) settle(router cluster.InstanceID, acknowledged bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.silent, router)
	if !acknowledged {
		d.asked--
	}
}

// progress returns the numbers of routers asked and of those that acknowledged, and the nodes
// of the others. Before the departure all are zero.
func (d *departure) progress() (asked, acknowledged int, silent []string) {
	if d == nil {
		return 0, 0, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, node := range d.silent {
		silent = append(silent, node)
	}
	slices.Sort(silent)
	return d.asked, d.asked - len(silent), silent[:min(len(silent), unacknowledgedNames)]
}
