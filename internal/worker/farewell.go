package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/runtime"
)

const (
	// farewellTimeout bounds the wait for routers to acknowledge that a worker is gone. One
	// that has not by then is named; what it still sends is refused, and goes elsewhere.
	farewellTimeout = 3 * time.Second
	// farewellRetry is how long after a failed call a router is asked again.
	farewellRetry = 50 * time.Millisecond
	// farewellNames is how many routers are named that have not answered.
	farewellNames = 10
)

// farewell asks all routers, which are the frontends, to acknowledge that they choose a
// worker no more that has left discovery.
type farewell struct {
	w      *Worker
	id     cluster.InstanceID // of the worker
	cancel context.CancelFunc
	over   chan struct{} // closed when all have acknowledged, or the time is up

	mu     sync.Mutex
	asked  int
	silent map[cluster.InstanceID]string // those that have not answered, with the names of their nodes
}

// sayFarewell begins; the caller must stop it.
func (w *Worker) sayFarewell(ctx context.Context) *farewell {
	// A router learns from the store who has left: while that is silent it has no answer.
	ctx, done := w.drt.Load().Store().WhileAnswering(ctx)
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	f := &farewell{w: w, id: w.drt.Load().ID(), cancel: cancel, over: make(chan struct{}), silent: map[cluster.InstanceID]string{}}
	go func() {
		defer close(f.over)
		defer done()
		defer cancel()
		f.run(ctx)
	}()
	return f
}

// stop ends the calls and waits for them.
func (f *farewell) stop() {
	f.cancel()
	<-f.over
}

// ended reports whether there is nothing left to wait for.
func (f *farewell) ended() bool {
	select {
	case <-f.over:
		return true
	default:
		return false
	}
}

func (f *farewell) run(ctx context.Context) {
	routers, err := runtime.NewClient(ctx, f.w.drt.Load(), cluster.ComponentFrontend, cluster.EndpointDeparted)
	if err != nil {
		f.w.log.Warn("routers not asked whether they know that the worker leaves", "error", err)
		return
	}
	defer routers.Close()
	all := routers.All()
	f.mu.Lock()
	f.asked = len(all)
	for _, inst := range all {
		f.silent[inst.InstanceID] = inst.Node
	}
	f.mu.Unlock()
	var wg sync.WaitGroup
	for _, inst := range all {
		wg.Go(func() { f.ask(ctx, routers, inst) })
	}
	wg.Wait()
	if asked, acknowledged, silent := f.progress(); acknowledged < asked {
		f.w.log.Warn("routers have not acknowledged that the worker leaves", "routers", asked, "acknowledged", acknowledged, "silent", silent)
	}
}

// ask asks one router until it answers, leaves discovery itself or the time is up.
func (f *farewell) ask(ctx context.Context, routers *runtime.Client, inst cluster.Instance) {
	for {
		err := f.call(ctx, routers, inst)
		if err == nil {
			f.settle(inst.InstanceID, true)
			return
		}
		select {
		case <-ctx.Done():
			f.w.log.Debug("no acknowledgement from a router", "node", inst.Node, "error", err)
			return
		case <-time.After(farewellRetry):
		}
		if !slices.ContainsFunc(routers.All(), func(i cluster.Instance) bool { return i.InstanceID == inst.InstanceID }) {
			f.settle(inst.InstanceID, false)
			return
		}
	}
}

func (f *farewell) call(ctx context.Context, routers *runtime.Client, inst cluster.Instance) error {
	stream, err := routers.Call(ctx, inst, "departed-"+f.id.String(), nil, protocol.DepartedRequest{InstanceID: f.id})
	if err != nil {
		return err
	}
	defer stream.Close()
	var answer protocol.Departed
	return stream.Recv(ctx, &answer)
}

// settle takes note of a router that has acknowledged, or is none any more.
func (f *farewell) settle(router cluster.InstanceID, acknowledged bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.silent, router)
	if !acknowledged {
		f.asked--
	}
}

// progress is how many routers there are, how many have acknowledged, and the nodes of
// others.
func (f *farewell) progress() (asked, acknowledged int, silent []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, node := range f.silent {
		silent = append(silent, node)
	}
	slices.Sort(silent)
	return f.asked, f.asked - len(silent), silent[:min(len(silent), farewellNames)]
}
