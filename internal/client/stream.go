package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/planner"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventKV     EventKind = "kv"     // blocks of a worker's prefix cache
	EventRouter EventKind = "router" // a choice of a worker
	EventEncode EventKind = "encode" // an image whose embeddings a worker computed or had
	EventWorker EventKind = "worker" // a worker that changed
	EventAction EventKind = "action" // what the controller did, and why
	// EventPlanner is a decision of the planner that says something new: it proposes or refuses a change, or
	// ends either. The first one that is heard counts as new.
	EventPlanner EventKind = "planner"
	EventGap     EventKind = "gap" // events that were lost
)

// Event is one event in a cluster. Kind says which one of the pointers is set.
type Event struct {
	Time     time.Time               `json:"time"` // by the clock of the publisher
	Kind     EventKind               `json:"kind"`
	Worker   string                  `json:"worker,omitempty"` // the worker that it is about, or that was chosen
	KV       *cluster.KVEvent        `json:"kv,omitempty"`
	Decision *cluster.RouterDecision `json:"decision,omitempty"`
	Encoding *cluster.Encoding       `json:"encoding,omitempty"`
	Change   *WorkerChange           `json:"change,omitempty"`
	Action   *cluster.TopologyEvent  `json:"action,omitempty"`
	Planner  *planner.Report         `json:"planner,omitempty"`
	Missed   uint64                  `json:"missed,omitempty"` // gap: number of lost events
	Of       EventKind               `json:"of,omitempty"`     // gap: kind of the lost events; empty if any
}

// WorkerChange describes a worker after a change of its state.
type WorkerChange struct {
	From       cluster.State      `json:"from,omitempty"` // empty for a worker that is new
	State      cluster.State      `json:"state"`          // StateGone when the worker was removed
	Role       cluster.Role       `json:"role,omitempty"`
	Reason     string             `json:"reason,omitempty"`
	Drain      cluster.DrainStep  `json:"drain_step,omitempty"`
	Left       int                `json:"sequences_left,omitempty"`
	Restarts   int                `json:"restarts,omitempty"`
	InstanceID cluster.InstanceID `json:"instance_id,omitempty"`
	Generation int64              `json:"generation"`
}

// StateGone marks a worker that has neither an assignment nor a status any more.
const StateGone cluster.State = "gone"

// ErrNoBus is returned by calls that need an event plane when none is configured.
var ErrNoBus = errors.New("no event plane is configured")

// streamQueue is the number of events that wait for a slow reader. Further ones are
// dropped and reported as a gap.
const streamQueue = 1024

// Stream delivers the events of a cluster. KV events, router decisions, the controller's
// actions and the planner's decisions come from the event plane. Changes of workers come from the event
// plane or the store, whichever reports them first.
type Stream struct {
	bus   *events.NATS
	watch *Watch
	out   chan Event
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu      sync.Mutex
	lost    uint64 // dropped since the last event that was delivered
	workers map[string]cluster.WorkerStatus
	decided map[string]planner.Decision // the planner's last, by pool
}

// Events starts a stream, which Close ends. It fails with ErrNoBus when no event plane is
// configured.
func (c *Cluster) Events(ctx context.Context) (*Stream, error) {
	bus, err := c.Bus()
	switch {
	case err != nil:
		return nil, err
	case bus == nil:
		return nil, ErrNoBus
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Stream{bus: bus, out: make(chan Event, streamQueue), stop: stop, workers: map[string]cluster.WorkerStatus{}}
	if s.watch, err = c.Watch(run); err != nil {
		stop()
		return nil, errors.Join(err, bus.Close())
	}
	for _, w := range s.watch.View().Workers() {
		s.workers[w.Name] = w.WorkerStatus
	}
	for topic, h := range map[string]func(events.Event){
		cluster.TopicKVEvents: s.kv, cluster.TopicRouterDecisions: s.decision, cluster.TopicWorkerStatus: s.status,
		cluster.TopicTopology: s.action, cluster.TopicEncodings: s.encodings, cluster.TopicPlanner: s.planner,
	} {
		if _, err := bus.Subscribe(run, events.Subject(c.Namespace, "*", topic), h); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	s.wg.Go(func() {
		for {
			select {
			case <-s.watch.Changed():
				s.look(s.watch.View())
			case <-run.Done():
				return
			}
		}
	})
	return s, nil
}

// Events returns the channel of new events. It is never closed.
func (s *Stream) Events() <-chan Event { return s.out }

// Connected reports whether the event plane is reachable, and why it is not.
func (s *Stream) Connected() (ok bool, why string) {
	return s.bus.Connected(), s.bus.Stats().LastError
}

// Close ends the stream and everything that it started.
func (s *Stream) Close() error {
	s.stop()
	err := s.bus.Close()
	s.watch.Close()
	s.wg.Wait()
	return err
}

// push delivers an event, or counts it as lost when the queue is full.
func (s *Stream) push(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushLocked(e)
}

func (s *Stream) pushLocked(e Event) {
	if s.lost > 0 {
		select {
		case s.out <- Event{Time: time.Now(), Kind: EventGap, Missed: s.lost}:
			s.lost = 0
		default:
			s.lost++
			return
		}
	}
	select {
	case s.out <- e:
	default:
		s.lost++
	}
}

// gap reports events that the event plane lost before this one.
func (s *Stream) gap(e events.Event, of EventKind, worker string) {
	if e.Missed > 0 {
		s.push(Event{Time: e.PublishedAt, Kind: EventGap, Missed: e.Missed, Of: of, Worker: worker})
	}
}

func (s *Stream) kv(e events.Event) {
	var ev cluster.KVEvent
	if e.Decode(&ev) == nil {
		s.gap(e, EventKV, ev.Worker)
		s.push(Event{Time: ev.Time, Kind: EventKV, Worker: ev.Worker, KV: &ev})
	}
}

func (s *Stream) decision(e events.Event) {
	var d cluster.RouterDecision
	if e.Decode(&d) == nil {
		s.gap(e, EventRouter, "")
		s.push(Event{Time: d.Time, Kind: EventRouter, Worker: d.Chosen, Decision: &d})
	}
}

// encodings delivers an event for each image; those that the worker left out are lost.
func (s *Stream) encodings(e events.Event) {
	var all cluster.Encodings
	if e.Decode(&all) != nil {
		return
	}
	s.gap(e, EventEncode, all.Worker)
	for i := range all.Images {
		s.push(Event{Time: all.Images[i].Time, Kind: EventEncode, Worker: all.Worker, Encoding: &all.Images[i]})
	}
	if n := all.Omitted; n > 0 {
		s.push(Event{Time: e.PublishedAt, Kind: EventGap, Missed: uint64(n), Of: EventEncode, Worker: all.Worker})
	}
}

func (s *Stream) action(e events.Event) {
	var a cluster.TopologyEvent
	if e.Decode(&a) == nil {
		s.gap(e, EventAction, "")
		s.push(Event{Time: a.Time, Kind: EventAction, Worker: a.Worker, Action: &a})
	}
}

// planner delivers the decisions that say something new: there is one every few seconds.
func (s *Stream) planner(e events.Event) {
	var r planner.Report
	if e.Decode(&r) != nil {
		return
	}
	s.gap(e, EventPlanner, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decided == nil {
		s.decided = map[string]planner.Decision{}
	}
	last, known := s.decided[r.Pool]
	if !known && len(s.decided) > cluster.MaxPools+cluster.MaxWorkersPerRole {
		return // more than there can be
	}
	news := r.Decision.News(last)
	if s.decided[r.Pool] = r.Decision; news {
		s.pushLocked(Event{Time: r.Decision.Time, Kind: EventPlanner, Planner: &r})
	}
}

func (s *Stream) status(e events.Event) {
	var st cluster.WorkerStatus
	if e.Decode(&st) == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changeLocked(st)
	}
}

// look compares the view with the last known statuses and delivers an event for each
// worker that changed or is gone.
func (s *Stream) look(v View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[string]bool{}
	for _, w := range v.Workers() {
		there[w.Name] = true
		s.changeLocked(w.WorkerStatus)
	}
	var gone []string
	for name := range s.workers {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	slices.SortFunc(gone, cluster.CompareNames)
	for _, name := range gone {
		old := s.workers[name]
		delete(s.workers, name)
		s.pushLocked(Event{Time: time.Now(), Kind: EventWorker, Worker: name, Change: &WorkerChange{
			From: old.State, State: StateGone, Role: old.Role, Generation: old.Generation,
		}})
	}
}

// changeLocked records a status and delivers an event if it differs from the last one. A
// status that the store concludes for a silent worker has no time of its own.
func (s *Stream) changeLocked(st cluster.WorkerStatus) {
	old, known := s.workers[st.Name]
	if known && !st.UpdatedAt.IsZero() && !st.UpdatedAt.After(old.UpdatedAt) {
		return
	}
	s.workers[st.Name] = st
	now := changeOf(st)
	before := changeOf(old)
	same := now
	if same.InstanceID == 0 { // a worker that leaves has none any more, which its state tells
		same.InstanceID = before.InstanceID
	}
	if known && same == before {
		return
	}
	now.From = old.State
	at := st.UpdatedAt
	if at.IsZero() {
		at = time.Now()
	}
	s.pushLocked(Event{Time: at, Kind: EventWorker, Worker: st.Name, Change: &now})
}

func changeOf(st cluster.WorkerStatus) WorkerChange {
	c := WorkerChange{State: st.State, Role: st.Role, Reason: st.Reason, Restarts: st.Restarts, InstanceID: st.InstanceID, Generation: st.Generation}
	if st.Drain != nil && st.State == cluster.StateDraining {
		c.Drain, c.Left = st.Drain.Step, st.Drain.Left
	}
	return c
}
