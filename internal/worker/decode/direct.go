package decode

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// callPrefill has one prefill worker do the work over the request plane: of those that
// have not been tried the one with the fewest calls of this worker, by lot among equals.
func (f *filling) callPrefill(ctx context.Context, req protocol.RemotePrefillRequest, _ *waiter) (n protocol.PrefillNotice, err error) {
	w := f.w
	err = errNoPrefill
	tried := map[cluster.InstanceID]bool{f.tried: true}
	for {
		inst, flight, ok := w.choosePrefill(req.RequestID, tried)
		if !ok {
			return n, lostOr(err)
		}
		tried[inst.InstanceID] = true
		n, err = f.callAt(ctx, inst, req)
		flight.End()
		if err == nil {
			return n, checkNotice(n, req)
		}
		if !requestplane.NotStarted(err) {
			return n, lostOr(err)
		}
	}
}

func (f *filling) callAt(ctx context.Context, inst cluster.Instance, req protocol.RemotePrefillRequest) (n protocol.PrefillNotice, err error) {
	stream, err := f.w.prefills.Call(ctx, inst, req.RequestID, nil, req)
	if err != nil {
		return n, err
	}
	defer stream.Close()
	f.move.Active(inst.Worker)
	return n, stream.Recv(ctx, &n)
}

// leastCalled chooses among prefill workers that are called directly.
var leastCalled = func() router.Policy {
	p, err := router.NewPolicy(router.LeastLoaded)
	if err != nil {
		panic(err)
	}
	return p
}()

// choosePrefill takes the least loaded of the prefill workers that have not been tried.
// The flight ends with the call; ok is false if none is left.
func (w *Role) choosePrefill(request string, tried map[cluster.InstanceID]bool) (inst cluster.Instance, flight *router.Flight, ok bool) {
	instances := w.prefills.Instances()
	var candidates []router.Candidate
	for _, i := range instances {
		if !tried[i.InstanceID] {
			candidates = append(candidates, router.Candidate{ID: i.InstanceID, Worker: i.Worker})
		}
	}
	d, flight, err := w.calls.Choose(router.Request{ID: request}, router.View{Candidates: candidates}, leastCalled.Pick)
	if err != nil {
		return inst, flight, false
	}
	at := slices.IndexFunc(instances, func(i cluster.Instance) bool { return i.InstanceID == d.Chosen.ID })
	return instances[at], flight, true // the candidates come from there
}

// lostOr says what an error of the request plane means: that a prefill worker is not
// there any more, or that it failed.
func lostOr(err error) error {
	var remote *requestplane.RemoteError
	switch {
	case errors.Is(err, requestplane.ErrDisconnected), errors.Is(err, requestplane.ErrCannotConnect),
		errors.As(err, &remote) && (remote.Kind == requestplane.KindUnavailable || remote.Kind == requestplane.KindDraining || remote.Kind == requestplane.KindUnknownEndpoint):
		return fmt.Errorf("%w: %w", errPrefillLost, err)
	case remote != nil:
		return fmt.Errorf("%w: %w", errPrefillFailed, err)
	}
	return err
}
