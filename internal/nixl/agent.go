package nixl

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
)

// Agent is one endpoint of transfers: it registers memory, loads peers, posts
// transfers to them, and lets them in by ticket.
//
// Lock order: Agent.mu or tickets.mu before regions.mu. Transfer.mu and Job.mu are
// never held together with another. No lock is held while a transport is called,
// except Agent.mu for Transport.Attach.
type Agent struct {
	self       Identity
	limits     Limits
	key        handshake.Key
	timeout    time.Duration // of a transfer without a deadline
	patience   time.Duration // with peers without free staging memory
	log        *slog.Logger
	transports []Transport
	force      []string

	stats     counters
	paths     paths
	regions   regions
	tickets   tickets
	inbox     *inbox
	selfNotes atomic.Int32 // to itself, not accepted yet
	downs     *downFeed
	probes    probeSlot

	stageIn, stageOut staging           // for accesses of peers and for own transfers
	devices           []DeviceTransport // those among the transports
	work              sync.WaitGroup    // staged transfers

	conns []transportConn // of this agent, fixed after NewAgent

	loading sync.Mutex // one LoadRemote at a time; before mu

	mu         sync.RWMutex
	closed     bool
	generation uint64
	peers      map[string]*peer
	inbound    map[inboundKey]*PeerInfo
	jobs       map[*Job]struct{}

	closeOnce sync.Once
	closeErr  error
}

// NewAgent starts the transports and returns the agent. When it fails, the
// transports are closed.
func NewAgent(cfg Config) (*Agent, error) {
	if cfg.Name == "" || len(cfg.Name) > maxNameLen || len(cfg.Incarnation) > maxNameLen || len(cfg.HostID) > maxNameLen {
		return nil, errors.Join(fmt.Errorf("start agent %q: name, incarnation or host id is empty or longer than %d bytes: %w", cfg.Name, maxNameLen, ErrInvalidParam), closeAll(cfg.Transports))
	}
	if len(cfg.Transports) > maxTransports {
		return nil, errors.Join(fmt.Errorf("start agent %q: %d transports: %w", cfg.Name, len(cfg.Transports), ErrInvalidParam), closeAll(cfg.Transports))
	}
	if cfg.Incarnation == "" {
		cfg.Incarnation = newUUID()
	}
	if cfg.TransferTimeout <= 0 {
		cfg.TransferTimeout = 60 * time.Second
	}
	if cfg.StagingPatience <= 0 {
		cfg.StagingPatience = 2 * time.Second
	}
	a := &Agent{
		self:   Identity{Name: cfg.Name, Incarnation: cfg.Incarnation, HostID: cfg.HostID},
		limits: cfg.Limits.withDefaults(), key: cfg.Key, timeout: cfg.TransferTimeout, patience: cfg.StagingPatience, log: cfg.logger(),
		transports: slices.Clone(cfg.Transports), force: slices.Clone(cfg.Force),
		peers: map[string]*peer{}, inbound: map[inboundKey]*PeerInfo{}, jobs: map[*Job]struct{}{},
		downs: newDownFeed(),
	}
	a.regions = regions{next: firstAddress(), limit: a.limits.Regions, added: a.registered, gone: a.deregistered, stage: a.openStaging}
	a.paths = paths{limit: 2 * a.limits.Peers, open: map[pathKey]*traffic{}, past: map[string]Traffic{}}
	a.stageIn = staging{bytes: a.limits.StagingBytes, regions: &a.regions}
	a.stageOut = staging{bytes: a.limits.StagingBytes, regions: &a.regions}
	a.tickets = tickets{regions: &a.regions, staging: &a.stageIn, limits: a.limits, stats: &a.stats, open: map[TicketID]*ticket{}}
	a.inbox = newInbox(a.limits.NotifyBytes, cfg.OnNotify, &a.stats)
	for _, tr := range a.transports {
		if dt, ok := tr.(DeviceTransport); ok {
			a.devices = append(a.devices, dt)
		}
		conn, err := tr.Start(host{a, tr})
		if err == nil && len(conn) > maxConnLen {
			err = fmt.Errorf("connection data of %d bytes: %w", len(conn), ErrBackend)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start agent %q: transport %s: %w", cfg.Name, tr.Name(), err), a.Close())
		}
		if conn != nil {
			a.conns = append(a.conns, transportConn{tr.Name(), conn})
		}
	}
	if err := a.checkForced(); err != nil {
		return nil, errors.Join(fmt.Errorf("start agent %q: %w", cfg.Name, err), a.Close())
	}
	return a, nil
}

// CloseGrace is the time for which Close waits for a peer that does not end an access.
const CloseGrace = 3 * time.Second

func closeAll(transports []Transport) error {
	var errs []error
	for _, tr := range transports {
		errs = append(errs, tr.Close())
	}
	return errors.Join(errs...)
}

// Name returns the agent's name.
func (a *Agent) Name() string { return a.self.Name }

// Incarnation returns the identity of this run of the agent.
func (a *Agent) Incarnation() string { return a.self.Incarnation }

// RegisterOption changes how memory is registered.
type RegisterOption func(*registerOptions)

type registerOptions struct {
	label   string
	private bool
}

// WithLabel names the region, for [Agent.RemoteRegion] at the peers.
func WithLabel(label string) RegisterOption { return func(o *registerOptions) { o.label = label } }

// Register makes memory usable in transfers and part of Metadata. The memory must
// stay mapped until Deregister has succeeded. Register one large arena rather than a
// region per block. Host memory is [DRAM]; [VRAM] must be a [DeviceMemory] and is
// copied through host memory where the transport does not reach it. Other types are
// refused with ErrNotSupported.
func (a *Agent) Register(mem Memory, typ MemType, opts ...RegisterOption) (*Region, error) {
	var o registerOptions
	for _, f := range opts {
		f(&o)
	}
	return a.regions.add(mem, typ, o)
}

// openStaging makes the agent ready for memory of devices.
func (a *Agent) openStaging() error { return errors.Join(a.stageIn.open(), a.stageOut.open()) }

// RegisterAll registers a list, in its order. When one element is refused nothing is
// registered.
func (a *Agent) RegisterAll(list []Registration) ([]*Region, error) { return a.regions.addAll(list) }

// Metadata returns the blob a peer must load before it can reach this agent. It
// changes when regions are registered or deregistered. It contains the secret that
// lets peers connect: publish it where only the cluster can read.
func (a *Agent) Metadata() []byte {
	return metadata{Identity: a.self, conns: a.conns, regions: a.publicRegions()}.encode()
}

// publicRegions are the regions as peers see them. Memory of a device that no transport
// reaches is reached through host memory that stands in for it.
func (a *Agent) publicRegions() []RemoteRegion {
	rs := a.regions.public(a.devices)
	for i := range rs {
		if rs[i].Type == VRAM {
			rs[i].Shared = rs[i].Direct || a.stageIn.shareable()
		}
	}
	return rs
}

// OpenTicket lets whoever knows the returned id access the memory of the spec,
// until it is revoked or its deadline has passed.
func (a *Agent) OpenTicket(spec TicketSpec) (TicketID, error) {
	return a.tickets.openTicket(spec, false)
}

// RevokeTicket ends a ticket. After it has returned nil no peer reads or writes
// under the ticket any more: new accesses are refused, running ones were aborted
// and have ended. It returns an error when ctx ends before that is certain; the
// memory must not be used then, and RevokeTicket may be called again. Revoking a
// ticket twice, or one that has expired, is not an error.
func (a *Agent) RevokeTicket(ctx context.Context, id TicketID) error {
	return a.tickets.revoke(ctx, id)
}

// Tickets is the number of open tickets, including those still being revoked.
func (a *Agent) Tickets() int {
	open, _ := a.tickets.count()
	return open
}

// Exposed reports whether a peer may touch any of the memory now: whether a ticket for op
// is open for it, or an access under a revoked one has not ended. It proves ownership to
// whoever uses the memory; to wait for the end, revoke the ticket.
func (a *Agent) Exposed(op Op, descs []Desc) bool { return a.tickets.exposed(op, descs) }

// InFlight counts the accesses of peers to this agent's memory and the posted
// transfers of this agent, now running. One transfer of a peer may be several
// accesses.
func (a *Agent) InFlight() (in, out int) {
	_, in = a.tickets.count()
	a.mu.RLock()
	defer a.mu.RUnlock()
	return in, len(a.jobs)
}

// Notifications delivers the messages of peers; nothing arrives here when
// Config.OnNotify is set. The channel is never closed. Without a reader,
// senders wait.
func (a *Agent) Notifications() <-chan Notification { return a.inbox.out }

// PeerDowns delivers the ends of connections with peers, in both directions. The
// channel is never closed. Events wait for the reader, merged by peer.
func (a *Agent) PeerDowns() <-chan PeerDown { return a.downs.out }

// Close ends everything: tickets are revoked and transfers end with ErrCanceled.
// It returns when no memory is touched any more and all goroutines have ended.
// Regions need not be deregistered after it. It must not be called from OnNotify.
//
// A peer on this machine whose process is stopped in the middle of an access cannot
// be waited for: Close then returns an error after [CloseGrace]. Its access ends when
// the process goes on or dies, and may reach whatever lies at the address by then: the
// owner must keep the memory mapped as long as this process lives.
func (a *Agent) Close() error {
	a.closeOnce.Do(func() {
		a.mu.Lock()
		a.closed = true
		jobs := make([]*Job, 0, len(a.jobs))
		for j := range a.jobs {
			jobs = append(jobs, j)
		}
		a.mu.Unlock()
		for _, j := range jobs {
			j.cancel(fmt.Errorf("agent %q closes: %w", a.self.Name, ErrCanceled))
		}
		busy := a.tickets.close()
		a.closeErr = errors.Join(busy, closeAll(a.transports))
		a.work.Wait()
		a.inbox.close()
		a.downs.close()
		a.probes.close()
		a.stageIn.close()
		a.stageOut.close()
		a.regions.clear()
	})
	return a.closeErr
}

// start hands a job to its peer's transport.
func (a *Agent) start(j *Job) error {
	t := j.transfer
	describe := func(err error) error { return fmt.Errorf("%s with %q: %w", t.op, t.peer.Name, err) }
	late := describe(fmt.Errorf("deadline has passed: %w", ErrCanceled))
	deadline := t.opts.Deadline
	if deadline.IsZero() {
		deadline = time.Now().Add(a.timeout)
	}
	left := time.Until(deadline)
	if left <= 0 {
		return late
	}
	if err := a.admit(j); err != nil {
		return describe(err)
	}
	a.stats.posted(t.op)
	j.setTimer(time.AfterFunc(left, func() { j.cancel(late) }))
	if t.staged {
		a.work.Go(func() { a.runStaged(j) })
		return nil
	}
	t.peer.transport.Submit(t.peer.Remote, j)
	return nil
}

// admit checks that a job may run and keeps its local memory registered.
func (a *Agent) admit(j *Job) (err error) {
	p := j.transfer.peer
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return fmt.Errorf("agent is closed: %w", ErrCanceled)
	case a.peers[p.Name] != p || p.state != PeerLoaded:
		return fmt.Errorf("peer was invalidated, replaced or lost: %w", ErrNotFound)
	case len(a.jobs) >= a.limits.Outstanding:
		return fmt.Errorf("%d transfers are in progress: %w", len(a.jobs), ErrBackend)
	}
	if j.Local, j.unuse, err = a.regions.use(j.transfer.local); err != nil {
		return err
	}
	if j.transfer.direct {
		j.Devices = a.regions.pieces(j.transfer.local)
	}
	a.jobs[j] = struct{}{}
	return nil
}

// registered tells those transports whose devices must know memory.
func (a *Agent) registered(base Desc, mem []byte) error {
	for _, tr := range a.transports {
		if m, ok := tr.(RegionMapper); ok {
			if err := m.MapRegion(base, mem); err != nil {
				return fmt.Errorf("transport %s: %w", tr.Name(), err)
			}
		}
	}
	return nil
}

// deregistered tells those transports that share or map memory.
func (a *Agent) deregistered(base Desc) {
	for _, tr := range a.transports {
		if o, ok := tr.(RegionObserver); ok {
			o.Deregistered(base)
		}
		if m, ok := tr.(RegionMapper); ok {
			m.UnmapRegion(base)
		}
	}
}

func (a *Agent) forget(j *Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.jobs, j)
}

// host is the Agent as one of its transports sees it.
type host struct {
	a *Agent
	t Transport
}

func (h host) Self() Identity     { return h.a.self }
func (h host) Log() *slog.Logger  { return h.a.log }
func (h host) Limits() Limits     { return h.a.limits }
func (h host) Key() handshake.Key { return h.a.key }

func (h host) Acquire(op Op, ticket TicketID, descs []Desc) (*Grant, error) {
	return h.a.tickets.acquire(op, ticket, descs, h.t)
}

func (h host) Share(d Desc) (Share, error) { return h.a.regions.share(d, h.t) }

func (h host) Deliver(from string, msg []byte, done func(error)) { h.a.inbox.deliver(from, msg, done) }

func (h host) PeerDown(r Remote, cause error) { h.a.peerDown(r, cause) }

func (h host) InboundUp(transport string, from Identity) { h.a.inboundUp(transport, from) }

func (h host) InboundDown(transport string, from Identity, cause error) {
	h.a.inboundDown(transport, from, cause)
}

func (h host) Refused(reason RefuseReason) { h.a.stats.refuse(reason) }

func (h host) OpenProbe(from string) (Probe, error) { return h.a.openProbe(from) }

func (h host) CloseProbe(id TicketID) { h.a.closeProbe(id) }

func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// firstAddress differs between agents, so that a descriptor of another run is
// refused instead of hitting what was registered in its place.
func firstAddress() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])>>20<<16 | 1<<40
}
