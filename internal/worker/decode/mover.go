package decode

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/metrics"
)

// moverPoll is the interval at which a mover looks for sequences that it can move.
const moverPoll = 20 * time.Millisecond

// triedTargets is the number of workers that one sequence is offered to before it waits.
const triedTargets = 3

// mover empties a decode worker: it hands running sequences over to other decode
// workers and gives those that wait back to their frontends, again and again, until it
// is stopped. What it cannot move goes on here.
type mover struct {
	w      *Role
	cancel context.CancelFunc
	done   chan struct{}
	wg     sync.WaitGroup // of moves
	freed  chan struct{}  // capacity 1: a move has ended

	mu    sync.Mutex
	moves map[string]*attempts // by sequence
	why   string               // nothing moves at all

	meeting sync.Mutex        // one at a time; guards what is below
	met     map[string]func() // lets go of the connections to NIXL agents
}

// attempts is the history of one sequence's moves.
type attempts struct {
	busy  bool
	slack int       // tokens beyond what it has, to reserve blocks for
	next  time.Time // not before
	why   string    // the last one failed
}

func (w *Role) startMover(ctx context.Context) *mover {
	ctx, cancel := context.WithCancel(ctx)
	m := &mover{
		w: w, cancel: cancel, done: make(chan struct{}), freed: make(chan struct{}, 1),
		moves: map[string]*attempts{}, met: map[string]func(){},
	}
	go m.run(ctx)
	return m
}

// stop ends the moving: sequences that are not committed elsewhere go on here. It does
// nothing to a nil mover.
func (m *mover) stop() {
	if m != nil {
		m.cancel()
		<-m.done
	}
}

func (m *mover) run(ctx context.Context) {
	defer close(m.done)
	defer m.leavePeers()
	defer m.wg.Wait()
	poll := time.NewTicker(moverPoll)
	defer poll.Stop()
	for {
		m.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-m.freed:
		case <-poll.C:
		}
	}
}

// reason says why a sequence has not moved, "" if it is about to.
func (m *mover) reason(id string) string {
	if m == nil {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.moves[id]; a != nil && a.why != "" && m.why == "" {
		return a.why
	}
	return m.why
}

// round starts as many moves as there are due and allowed.
func (m *mover) round(ctx context.Context) {
	e := m.w.Engine
	ids, err := e.Exportable(ctx)
	if err != nil {
		return // the engine stops, or the mover does
	}
	due := m.due(ids)
	st := e.Stats()
	if len(due) == 0 && st.Waiting+st.RemoteWait == 0 {
		return
	}
	others, why := m.candidates(ctx)
	m.mu.Lock()
	m.why = why
	m.mu.Unlock()
	if len(others) == 0 {
		return
	}
	if n, err := e.GiveBack(ctx); err == nil && n > 0 {
		m.w.Log.Info("requests that waited go to other workers", "requests", n)
	}
	for _, id := range due {
		m.begin(id)
		leastLoaded(others)
		others[0].Sequences++ // so that the next one may go elsewhere
		targets := slices.Clone(others[:min(len(others), triedTargets)])
		m.wg.Go(func() { m.move(ctx, id, targets) })
	}
}

// due are the sequences that may be tried now.
func (m *mover) due(ids []string) (due []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	busy := 0
	for id, a := range m.moves {
		if a.busy {
			busy++
		} else if !slices.Contains(ids, id) {
			delete(m.moves, id)
		}
	}
	now := time.Now()
	for _, id := range ids {
		a := m.moves[id]
		if a == nil {
			a = &attempts{slack: roomTokens}
			m.moves[id] = a
		}
		if busy < m.w.Limits.Leaving && !a.busy && !now.Before(a.next) {
			due = append(due, id)
			busy++
		}
	}
	return due
}

func (m *mover) begin(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moves[id].busy = true
}

// candidates are workers with a free place, or why there are none. In a large cluster
// some are asked, other ones each time.
func (m *mover) candidates(ctx context.Context) (found []candidate, why string) {
	var ask []cluster.Instance
	for _, i := range m.w.others.Instances() {
		if i.Worker != m.w.Worker {
			ask = append(ask, i)
		}
	}
	if len(ask) == 0 {
		return nil, errNoOtherDecode.Error()
	}
	rand.Shuffle(len(ask), func(i, j int) { ask[i], ask[j] = ask[j], ask[i] })
	ask = ask[:min(len(ask), m.w.Limits.Asked)]
	answers := make([]candidate, len(ask))
	var wg sync.WaitGroup
	for i, to := range ask {
		wg.Go(func() {
			room, err := m.w.askRoom(ctx, to)
			if err != nil {
				m.w.Log.Debug("no answer to the request for room", "worker", to.Worker, "error", err)
				return
			}
			answers[i] = candidate{to, room}
		})
	}
	wg.Wait()
	for _, c := range answers {
		if c.Sequences < c.MaxSequences {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return nil, errNoRoom.Error()
	}
	return found, ""
}

// move hands one sequence over to the first target that takes it.
func (m *mover) move(ctx context.Context, id string, targets []candidate) {
	err := m.tryAll(ctx, id, targets)
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.moves[id]; a != nil {
		a.busy = false
		if err != nil {
			a.why, a.next = err.Error(), time.Now().Add(m.w.Limits.Again)
			if errors.Is(err, errOutgrown) {
				a.slack *= 2
			}
		}
	}
	select {
	case m.freed <- struct{}{}:
	default:
	}
}

// tryAll returns nil when there is nothing left to move.
func (m *mover) tryAll(ctx context.Context, id string, targets []candidate) error {
	x, err := m.w.Engine.Export(ctx, id)
	if err != nil {
		return nil //nolint:nilerr // it has ended, or waits again
	}
	defer x.Abandon() // it goes on here, unless it has moved
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(x.Context(), func() { cancel(engine.ErrGone) })()
	m.mu.Lock()
	slack := m.moves[id].slack
	m.mu.Unlock()
	for _, to := range targets {
		m.w.Meter.HandoverStarted(metrics.DirectionOut)
		if err = m.meet(ctx, to); err == nil {
			err = m.w.handOver(ctx, x, to, slack)
		}
		if err == nil {
			m.w.Meter.HandoverEnded(metrics.DirectionOut, metrics.HandoverMoved, "")
			return nil
		}
		if cause := context.Cause(ctx); cause != nil || errors.Is(err, engine.ErrGone) {
			m.w.Meter.HandoverEnded(metrics.DirectionOut, metrics.HandoverOver, handoverReason(cmp.Or(cause, err)))
			m.w.Log.Debug("hand-over ended", "request", id, "to", to.Worker, "cause", cause)
			return nil
		}
		outcome := metrics.HandoverFailed
		if errors.Is(err, errNotTaken) {
			outcome = metrics.HandoverRefused
		}
		m.w.Meter.HandoverEnded(metrics.DirectionOut, outcome, handoverReason(err))
		m.w.Log.Info("hand-over failed, the sequence continues on this worker", "request", id, "to", to.Worker, "error", err)
		x.Resume()
	}
	return err
}

// meet makes a target known to this worker's NIXL agent and proves the path to it
// before the first sequence is offered, which could grow meanwhile.
func (m *mover) meet(ctx context.Context, to candidate) error {
	m.meeting.Lock()
	defer m.meeting.Unlock()
	if ctx.Err() != nil { // it waited for another meeting
		return context.Cause(ctx)
	}
	leave, err := m.w.Peers.Meet(ctx, to.EngineID, to.Metadata)
	if err != nil {
		return err
	}
	if m.met[to.EngineID] != nil {
		leave()
	} else {
		m.met[to.EngineID] = leave
	}
	return nil
}

// leavePeers lets go of the connections that hand-overs have used.
func (m *mover) leavePeers() {
	for _, leave := range m.met {
		leave()
	}
}
