package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// waiters are the remote prefills that this decode worker waits for, by ticket.
type waiters struct {
	mu       sync.Mutex
	byTicket map[string]*waiter
}

type waiter struct {
	notices chan protocol.PrefillNotice // capacity 4: started, done or failed, and a retry
	lost    chan error                  // capacity 1: nobody will finish it any more
	peer    string                      // NIXL agent that has started; guarded by waiters.mu
	move    *kv.Movement
}

func newWaiters() *waiters { return &waiters{byTicket: map[string]*waiter{}} }

func (ws *waiters) add(ticket string, move *kv.Movement) *waiter {
	wt := &waiter{move: move, notices: make(chan protocol.PrefillNotice, 4), lost: make(chan error, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.byTicket[ticket] = wt
	return wt
}

func (ws *waiters) remove(ticket string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byTicket, ticket)
}

// deliver hands a notice to whoever waits for it; late ones are dropped.
func (ws *waiters) deliver(from string, n protocol.PrefillNotice) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	wt := ws.byTicket[n.Ticket]
	if wt == nil {
		return
	}
	if n.Phase == protocol.PrefillStarted {
		wt.peer = from
		wt.move.Active(kv.WorkerOf(from))
	}
	select {
	case wt.notices <- n:
	default:
	}
}

// fail tells the waiters whose prefill is under way at peer, or all of them if peer
// is empty, that nobody will finish it.
func (ws *waiters) fail(peer string, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, wt := range ws.byTicket {
		if peer == "" || wt.peer == peer {
			select {
			case wt.lost <- err:
			default:
			}
		}
	}
}

// watchPrefills tells the waiters when no prefill worker is left, until ctx ends.
func (w *Worker) watchPrefills(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.prefills.Changed():
			if len(w.prefills.Instances()) == 0 {
				w.waiters.fail("", errNoPrefill)
			}
		}
	}
}

// Noticed implements kv.Listener: it hands a notice to whoever it is for.
func (w *Worker) Noticed(agent string, n protocol.PrefillNotice) {
	if n.Phase == protocol.PrefillRead {
		w.holds.read(n)
		return
	}
	w.waiters.deliver(agent, n)
}

// PeerLost implements kv.Listener.
func (w *Worker) PeerLost(agent string) {
	w.waiters.fail(agent, fmt.Errorf("%w: %s", errPrefillLost, agent))
}

// asker has a prefill worker fill the blocks of a request and waits for the end; wt
// hears of notifications for the request's ticket.
type asker func(ctx context.Context, req protocol.RemotePrefillRequest, wt *waiter) (protocol.PrefillNotice, error)

// push has somebody else write the KV into the reservation, under a ticket of its own.
// When it returns, nobody writes under that ticket any more, or the blocks are in
// quarantine and the reservation has ended.
func (f *filling) push(ctx context.Context, way protocol.PrefillWay, ask asker) {
	w, r := f.w, f.r
	f.way = way
	f.move.Become(cluster.TransferWrite)
	deadline, _ := ctx.Deadline()
	ticket, err := w.kv.OpenTicket(nixl.Write, r.Blocks[r.CachedBlocks:], deadline, r.RequestID)
	if err != nil {
		f.err = fmt.Errorf("%w: %w", errNoTicket, err)
		return
	}
	wt := w.waiters.add(ticket.String(), f.move)
	defer w.waiters.remove(ticket.String())
	pointTicketOpened.Hit()
	defer f.makeResident(ctx)()

	id := w.kv.Identity()
	req := protocol.RemotePrefillRequest{
		RequestID: r.RequestID, Tenant: f.tenant, Attempt: 1, ModelSum: id.ModelSum,
		TokenIDs: r.Prompt[:r.Wanted()], EngineID: w.kv.Name(), Worker: w.Name(),
		BlockIDs: r.Blocks, ComputedBlocks: r.CachedBlocks,
		BlockSize: id.BlockSize, BlockBytes: id.BlockBytes, KVLayout: id.KVLayout, HashSeed: id.HashSeed,
		Ticket: ticket.String(), Deadline: deadline, EnqueuedAt: time.Now(),
	}
	if f.notice, f.err = ask(ctx, req, wt); f.err == nil {
		pointTold.Hit()
	}

	// From here on nobody may write: a worker that was slow, or a second delivery
	// of the message, would hurt whoever has the blocks next.
	if err := w.kv.Revoke(ticket); err != nil {
		w.log.Error("blocks quarantined: writes could not be stopped", "request", r.RequestID,
			"blocks", len(r.Blocks)-r.CachedBlocks, "error", err)
		f.over = true
		w.meter().Quarantines.Inc()
		w.meter().Prefill(metrics.PrefillFallback, string(f.way), whyQuarantined)
		w.kv.LiftWhenSafe(r.RequestID, ticket, r.Quarantine(whyQuarantined), w.workCtx.Done())
		return
	}
	pointTicketRevoked.Hit()
}

// makeResident prepares the memory of the blocks that somebody will write; the returned
// function ends that.
func (f *filling) makeResident(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.w.kv.MakeResident(ctx, f.r.Blocks[f.r.CachedBlocks:])
	}()
	return func() {
		cancel()
		<-done
	}
}

// whyQuarantined is the reason of a local prefill whose first blocks may still be
// written by somebody.
const whyQuarantined = "writer not stopped"

var (
	errRemoteTimeout = errors.New("remote prefill timed out")
	errNoPrefill     = errors.New("no prefill worker left")
	errPrefillLost   = errors.New("prefill worker lost")
	errPrefillFailed = errors.New("prefill worker failed")
	errPullFailed    = errors.New("KV not read")
	errNoTicket      = errors.New("no ticket")
	errQueueLost     = fmt.Errorf("the message was not fetched: %w", events.ErrUnavailable)
)

// queueLookEvery is how often a decode worker makes sure that the queue with its
// request is still reachable.
const queueLookEvery = 250 * time.Millisecond

// fallbackReason is the short form of an error that operators see in the router
// pane.
func fallbackReason(err error) string {
	for _, known := range []error{errRemoteTimeout, kv.ErrMismatch, errNoPrefill, errPrefillLost, errPrefillFailed, errPullFailed, errNoTicket, events.ErrFull} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if errors.Is(err, events.ErrUnavailable) {
		return "queue unreachable"
	}
	return "error"
}

// requestPrefill enqueues the request and waits for its end.
func (f *filling) requestPrefill(ctx context.Context, req protocol.RemotePrefillRequest, wt *waiter) (protocol.PrefillNotice, error) {
	w := f.w
	body, err := protocol.Marshal(req)
	if err != nil {
		return protocol.PrefillNotice{}, err
	}
	id := req.RequestID + "/" + req.Ticket[:8]
	switch err := w.cfg.Queue.Enqueue(ctx, id, body); {
	case errors.Is(err, events.ErrUnavailable):
		f.way = protocol.WayDirect // without the queue a worker is asked directly
		return f.callPrefill(ctx, req, wt)
	case err != nil:
		return protocol.PrefillNotice{}, fmt.Errorf("enqueue: %w", err)
	}
	pointQueued.Hit()
	n, err := f.awaitPrefill(ctx, req, wt)
	if err != nil {
		w.forgetMessage(ctx, id)
		return n, err
	}
	// Its worker acknowledges the message; only if that fails it is still there. The
	// sequence does not wait for the queue's answer.
	f.after = func() { w.forgetMessage(ctx, id) }
	return n, nil
}

// awaitPrefill waits for the end of a request that was enqueued.
func (f *filling) awaitPrefill(ctx context.Context, req protocol.RemotePrefillRequest, wt *waiter) (protocol.PrefillNotice, error) {
	look := time.NewTicker(queueLookEvery)
	defer look.Stop()
	for started, unreachable := false, 0; ; {
		select {
		case n := <-wt.notices:
			if n.Phase != protocol.PrefillStarted {
				return n, checkNotice(n, req)
			}
			started = true
		case <-look.C:
			// Nobody fetches from a queue that is out of reach. One look may fall into
			// a reconnect.
			if started || f.w.cfg.Bus.Connected() {
				unreachable = 0
			} else if unreachable++; unreachable == 2 {
				return protocol.PrefillNotice{}, errQueueLost
			}
		case err := <-wt.lost:
			return protocol.PrefillNotice{}, err
		case <-ctx.Done():
			return protocol.PrefillNotice{}, context.Cause(ctx)
		}
	}
}

// forgetMessage takes a message that is no longer wanted out of the queue. Done
// messages are gone already; the call then does nothing.
func (w *Worker) forgetMessage(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = w.cfg.Queue.Remove(ctx, id) // best effort: a late prefill finds its ticket revoked
}

// callPrefill has one prefill worker do the work over the request plane: of those that
// have not been tried the one with the fewest calls of this worker, by lot among equals.
func (f *filling) callPrefill(ctx context.Context, req protocol.RemotePrefillRequest, _ *waiter) (n protocol.PrefillNotice, err error) {
	w := f.w
	err = errNoPrefill
	tried := map[cluster.InstanceID]bool{f.tried: true}
	for {
		inst, release, ok := w.choosePrefill(req.RequestID, tried)
		if !ok {
			return n, lostOr(err)
		}
		tried[inst.InstanceID] = true
		n, err = f.callAt(ctx, inst, req)
		release()
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
// The release must be called when the call has ended; ok is false if none is left.
func (w *Worker) choosePrefill(request string, tried map[cluster.InstanceID]bool) (inst cluster.Instance, release func(), ok bool) {
	instances := w.prefills.Instances()
	var candidates []router.Candidate
	for _, i := range instances {
		if !tried[i.InstanceID] {
			candidates = append(candidates, router.Candidate{ID: i.InstanceID, Worker: i.Worker})
		}
	}
	d, release, err := w.calls.Choose(candidates, func(c []router.Candidate) (router.Decision, error) {
		return leastCalled.Pick(router.Request{ID: request}, c)
	})
	if err != nil {
		return inst, release, false
	}
	at := slices.IndexFunc(instances, func(i cluster.Instance) bool { return i.InstanceID == d.Chosen.ID })
	return instances[at], release, true // the candidates come from there
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

// checkNotice says whether a final notice means that all KV is in place.
func checkNotice(n protocol.PrefillNotice, req protocol.RemotePrefillRequest) error {
	switch {
	case n.Phase != protocol.PrefillDone:
		return fmt.Errorf("%w: %s: %s", errPrefillFailed, n.Worker, n.Error)
	case n.Tokens != len(req.TokenIDs):
		return fmt.Errorf("%w: %s wrote %d of %d tokens", errPrefillFailed, n.Worker, n.Tokens, len(req.TokenIDs))
	}
	return nil
}
