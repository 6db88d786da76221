package replicasync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

// Config holds the dependencies of a Sync.
type Config struct {
	Runtime *runtime.DistributedRuntime // has an event plane
	// Loads count the requests by the role for which a worker is chosen: decode, prefill.
	Loads   map[cluster.Role]*router.Load
	Metrics *metrics.Registry
	Log     *slog.Logger
}

// Sync tells other frontends of the flights of its own one and follows theirs.
type Sync struct {
	cfg     Config
	metrics *metrics.ReplicaSync
	outbox  *outbox
	client  *runtime.Client // the frontends' endpoint
	sub     events.Subscription
	subject string

	mu    sync.Mutex
	peers map[cluster.InstanceID]*peer
}

const (
	// gatherFor is how long changes wait for others, so that they share a message.
	gatherFor = 2 * time.Millisecond
	// lookEvery is how often it looks which frontends must be asked.
	lookEvery = 50 * time.Millisecond
)

// New starts following the frontends and observes the loads, before their first choice.
// Close must follow, after Run if that is called.
func New(ctx context.Context, cfg Config) (*Sync, error) {
	s := &Sync{cfg: cfg, peers: map[cluster.InstanceID]*peer{}}
	s.metrics = metrics.NewReplicaSync(cfg.Metrics, s.flights)
	s.outbox = newOutbox(s.metrics.Lost, time.Now())
	s.subject = events.Subject(cfg.Runtime.Namespace(), cluster.ComponentFrontend, cluster.TopicFlights)
	var err error
	if s.client, err = runtime.NewClient(ctx, cfg.Runtime, cluster.ComponentFrontend, cluster.EndpointFlights); err != nil {
		return nil, fmt.Errorf("follow the frontends: %w", err)
	}
	if s.sub, err = cfg.Runtime.Bus().Subscribe(ctx, s.subject, s.onEvent); err != nil {
		s.client.Close()
		return nil, fmt.Errorf("subscribe to %s: %w", cluster.TopicFlights, err)
	}
	for phase, l := range cfg.Loads {
		l.Observe(func(c cluster.FlightChange) {
			c.Phase = phase
			s.outbox.put(c)
		})
	}
	return s, nil
}

// Close ends what New has started. It must not be called while Run runs.
func (s *Sync) Close() {
	_ = s.sub.Close() // ended with the bus, if it fails
	s.client.Close()
}

// Run publishes and follows flights until ctx ends. Meanwhile the frontend is in discovery
// with its endpoint flights.
func (s *Sync) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.serve(ctx) })
	wg.Go(func() { s.publish(ctx) })
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.follow(now)
			for _, p := range s.due(now) {
				wg.Go(func() { s.ask(ctx, p) })
			}
		}
	}
}

// serve registers the endpoint until ctx ends, however long the store is unreachable.
func (s *Sync) serve(ctx context.Context) {
	var served *runtime.Served
	for {
		var err error
		served, err = s.cfg.Runtime.Serve(ctx, cluster.ComponentFrontend, cluster.EndpointFlights, s.sendFlights)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, store.ErrUnavailable) {
			s.cfg.Log.Error("other frontends cannot count the requests of this one", "error", err)
			return
		}
		select {
		case <-time.After(heartbeat):
		case <-ctx.Done():
			return
		}
	}
	<-ctx.Done()
	over, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := served.Close(over); err != nil { // it ends with the lease
		s.cfg.Log.Debug("flights endpoint not withdrawn", "error", err)
	}
}

// publish sends the changes of the own flights, and the position each second.
func (s *Sync) publish(ctx context.Context) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.outbox.wake:
			select {
			case <-time.After(gatherFor):
			case <-ctx.Done():
				return
			}
		case <-beat.C:
		}
		for more := true; more; {
			var m cluster.FlightEvents
			m, more = s.outbox.take()
			m.Frontend = s.cfg.Runtime.ID()
			if err := s.cfg.Runtime.Bus().Publish(ctx, s.subject, m); err != nil {
				s.outbox.unpublished(m)
			}
		}
	}
}

// follow brings the frontends in line with discovery.
func (s *Sync) follow(now time.Time) {
	own := s.cfg.Runtime.ID()
	here := map[cluster.InstanceID]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, inst := range s.client.All() {
		if inst.InstanceID == own {
			continue
		}
		here[inst.InstanceID] = true
		if p := s.peers[inst.InstanceID]; p != nil {
			p.at = inst
		} else {
			s.peers[inst.InstanceID] = newPeer(inst, s.cfg.Loads, s.metrics, now)
		}
	}
	for id, p := range s.peers {
		if !here[id] {
			p.forget()
			delete(s.peers, id)
		}
	}
}

// due returns the frontends that must be asked.
func (s *Sync) due(now time.Time) (out []*peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		if p.due(now) {
			p.asking = true
			out = append(out, p)
		}
	}
	return out
}

// onEvent takes a message of any frontend. Own ones, and those of frontends that are not in
// discovery, are ignored: frontends are asked for all when they enter it.
func (s *Sync) onEvent(e events.Event) {
	m, err := decode(e.Payload)
	if err != nil {
		s.metrics.Malformed.Inc()
		s.cfg.Log.Debug("flights of another frontend ignored", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[m.Frontend]; p != nil {
		p.message(m, time.Now())
	}
}

// flights returns the number of flights of other frontends.
func (s *Sync) flights() (n float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		n += float64(p.flights())
	}
	return n
}

// Frontends describes the other frontends, sorted by node.
func (s *Sync) Frontends() []cluster.ReplicaFrontend {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []cluster.ReplicaFrontend{}
	for id, p := range s.peers {
		out = append(out, cluster.ReplicaFrontend{
			Frontend: p.at.Node, InstanceID: id, Flights: p.flights(), OutOfDateSince: p.missing, GapsTotal: p.gaps, SnapshotsTotal: p.snapshots,
		})
	}
	slices.SortFunc(out, func(a, b cluster.ReplicaFrontend) int {
		return cmp.Or(cmp.Compare(a.Frontend, b.Frontend), cmp.Compare(a.InstanceID, b.InstanceID))
	})
	return out
}
