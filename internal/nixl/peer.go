package nixl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// PeerState is an agent's knowledge of a peer.
type PeerState uint8

// The states of a peer.
const (
	PeerLoaded  PeerState = iota + 1 // metadata is loaded, transfers may be posted
	PeerFailed                       // the connection broke; load its metadata again
	PeerInbound                      // only connected to this agent, metadata not loaded
)

// String returns "loaded", "failed" or "inbound".
func (s PeerState) String() string {
	switch s {
	case PeerLoaded:
		return "loaded"
	case PeerFailed:
		return "failed"
	case PeerInbound:
		return "inbound"
	}
	return "unknown"
}

// MarshalText returns the word of String.
func (s PeerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// PeerInfo describes a peer for people and metrics.
type PeerInfo struct {
	Name        string
	Incarnation string
	HostID      string
	Transport   string // the one chosen for transfers to the peer, or used by it
	State       PeerState
	Reason      string // why that transport was chosen, or why the peer failed
	Inbound     int    // open connections of the peer to this agent, by session
	Since       time.Time
	Traffic     Traffic     // of this agent's transfers to the peer over Transport
	Candidates  []Candidate // all transports of this agent, in order of preference
	Test        *PathTest   // nil before the first
}

// peer is loaded metadata. Only state, reason, regions and test change after
// LoadRemote, under Agent.mu.
type peer struct {
	Remote
	transport Transport
	state     PeerState
	reason    string
	since     time.Time
	conns     []transportConn
	regions   []RemoteRegion
	cover     []Desc // of the regions, sorted
	devices   []Desc // of those that are memory of devices which the transport does not reach, sorted
	chosen    choice
	disproved map[string]error // transports whose self-test failed
	test      *PathTest
	agent     *Agent
}

// covers reports the first descriptor outside of the peer's regions.
func (p *peer) covers(descs []Desc) error {
	p.agent.mu.RLock()
	defer p.agent.mu.RUnlock()
	for i, d := range descs {
		if coveringPiece(p.cover, d) < 0 {
			return fmt.Errorf("remote descriptor %d (%s) is outside of its regions: %w", i, d, ErrNotFound)
		}
	}
	return nil
}

func (p *peer) setRegions(rs []RemoteRegion) {
	p.regions, p.cover, p.devices = rs, make([]Desc, 0, len(rs)), nil
	for _, r := range rs {
		p.cover = append(p.cover, r.Base)
		if r.Type == VRAM && !(r.Direct && reachesDevices(p.transport)) {
			p.devices = append(p.devices, r.Base)
		}
	}
	// Not merged: a descriptor that spans two registrations is refused.
	slices.SortFunc(p.cover, compareDesc)
	slices.SortFunc(p.devices, compareDesc)
}

func reachesDevices(t Transport) bool { _, ok := t.(DeviceTransport); return ok }

// namesDevice reports whether one of the descriptors is memory of a device that has to
// be staged at the peer.
func (p *peer) namesDevice(descs []Desc) bool {
	p.agent.mu.RLock()
	defer p.agent.mu.RUnlock()
	return len(p.devices) > 0 && slices.ContainsFunc(descs, func(d Desc) bool { return coveringPiece(p.devices, d) >= 0 })
}

// LoadRemote makes the agent of a metadata blob known, chooses its transport and
// returns its name. It does not connect. Loading the same blob again does nothing;
// a blob of the same incarnation with other regions replaces the regions; one of
// another incarnation, or with regions that need another transport, replaces the
// peer, whose transfers end with ErrRemoteDisconnect. A peer that failed can be
// loaded again.
//
// Errors: ErrMismatch for a malformed blob, ErrInvalidParam for the agent's own,
// ErrNotAllowed for the same incarnation with other connection data, ErrNotSupported when no transport reaches the peer; nothing is remembered then.
func (a *Agent) LoadRemote(blob []byte) (string, error) {
	m, err := decodeMetadata(blob)
	if err != nil {
		return "", err
	}
	if m.Name == a.self.Name {
		return "", fmt.Errorf("load remote %q: that is this agent's own name: %w", m.Name, ErrInvalidParam)
	}
	a.loading.Lock()
	defer a.loading.Unlock()
	c := a.choose(m, a.disproved(m.Identity))
	if c.transport == nil {
		return "", fmt.Errorf("load remote %q: no transport: %s: %w", m.Name, c.reason, ErrNotSupported)
	}

	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return "", fmt.Errorf("load remote %q: agent is closed: %w", m.Name, ErrNotAllowed)
	}
	old := a.peers[m.Name]
	live := old != nil && old.state == PeerLoaded
	cause := fmt.Errorf("peer %q was replaced by incarnation %s: %w", m.Name, m.Incarnation, ErrRemoteDisconnect)
	if live && old.Incarnation == m.Incarnation {
		if !slices.EqualFunc(old.conns, m.conns, func(x, y transportConn) bool {
			return x.name == y.name && slices.Equal(x.conn, y.conn)
		}) {
			a.mu.Unlock()
			return "", fmt.Errorf("load remote %q: same incarnation with other connection data: %w", m.Name, ErrNotAllowed)
		}
		if old.transport == c.transport {
			old.setRegions(m.regions)
			a.mu.Unlock()
			return m.Name, nil
		}
		cause = fmt.Errorf("regions of peer %q are reached over %s now: %w", m.Name, c.transport.Name(), ErrRemoteDisconnect)
	}
	if old == nil && !a.roomLocked() {
		a.mu.Unlock()
		return "", fmt.Errorf("load remote %q: %d peers are loaded: %w", m.Name, len(a.peers), ErrBackend)
	}
	p := a.addPeerLocked(m, c)
	if old != nil && old.Incarnation == m.Incarnation {
		p.disproved, p.test = old.disproved, old.test
	}
	a.mu.Unlock()

	if live {
		old.transport.Disconnect(old.Remote, cause)
	}
	a.announce(p, len(m.regions), c, old)
	return m.Name, nil
}

// addPeerLocked makes a new generation of a peer the present one.
func (a *Agent) addPeerLocked(m metadata, c choice) *peer {
	a.generation++
	c.remote.Generation = a.generation
	p := &peer{
		Remote: c.remote, transport: c.transport, state: PeerLoaded, reason: c.reason, since: time.Now(),
		conns: m.conns, chosen: c, agent: a,
	}
	p.setRegions(m.regions)
	c.transport.Attach(p.Remote)
	a.peers[m.Name] = p
	return p
}

// disproved are the transports that failed a self-test with this incarnation.
func (a *Agent) disproved(id Identity) map[string]error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if p := a.peers[id.Name]; p != nil && p.Incarnation == id.Incarnation {
		return p.disproved
	}
	return nil
}

// roomLocked reports whether one more peer fits; failed ones make room.
func (a *Agent) roomLocked() bool {
	if len(a.peers) < a.limits.Peers {
		return true
	}
	var oldest *peer
	for _, p := range a.peers {
		if p.state == PeerFailed && (oldest == nil || p.since.Before(oldest.since)) {
			oldest = p
		}
	}
	if oldest == nil {
		return false
	}
	delete(a.peers, oldest.Name)
	return true
}

// Invalidate forgets a peer; its running transfers end with ErrNotFound. It
// returns ErrNotFound if the peer was not known.
func (a *Agent) Invalidate(name string) error {
	a.mu.Lock()
	p := a.peers[name]
	live := p != nil && p.state == PeerLoaded
	delete(a.peers, name)
	a.mu.Unlock()
	if p == nil {
		return fmt.Errorf("invalidate %q: %w", name, ErrNotFound)
	}
	if live {
		p.transport.Disconnect(p.Remote, fmt.Errorf("peer %q was invalidated: %w", name, ErrNotFound))
	}
	return nil
}

// ErrUnused is why a connection ends that [Agent.Rest] closed.
var ErrUnused = errors.New("connection closed, nobody uses it")

// Rest closes the connection to a loaded peer that nobody uses. The peer stays known, with
// its transport and its tests; what comes next connects again. It learns of no loss.
// Transfers that run or were prepared end with ErrNotFound. Rest returns ErrNotFound if the
// peer is not loaded.
func (a *Agent) Rest(name string) error {
	a.mu.Lock()
	old := a.peers[name]
	if old == nil || old.state != PeerLoaded || a.closed {
		a.mu.Unlock()
		return fmt.Errorf("rest %q: peer is not loaded: %w", name, ErrNotFound)
	}
	a.generation++
	fresh := *old
	fresh.Generation = a.generation
	fresh.transport.Attach(fresh.Remote)
	a.peers[name] = &fresh
	a.mu.Unlock()
	old.transport.Disconnect(old.Remote, fmt.Errorf("peer %q: %w: %w", name, ErrUnused, ErrNotFound))
	return nil
}

// TransportTo returns the name of the transport that was chosen for a peer; empty for one
// that is not loaded.
func (a *Agent) TransportTo(name string) string {
	p := a.current(name)
	if p == nil {
		return ""
	}
	return p.transport.Name()
}

// SameHost reports whether a known peer is on the host of this agent.
func (a *Agent) SameHost(name string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	p := a.peers[name]
	return p != nil && p.HostID == a.self.HostID
}

// Known reports whether this incarnation of the peer is loaded and has not
// failed; an empty incarnation stands for any.
func (a *Agent) Known(name, incarnation string) bool {
	p := a.current(name)
	return p != nil && (incarnation == "" || p.Incarnation == incarnation)
}

// current returns the peer if it is loaded and has not failed.
func (a *Agent) current(name string) *peer {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if p := a.peers[name]; p != nil && p.state == PeerLoaded {
		return p
	}
	return nil
}

// RemoteRegion finds a region of a loaded peer by its label.
func (a *Agent) RemoteRegion(name, label string) (RemoteRegion, error) {
	rs, err := a.RemoteRegions(name)
	if err != nil {
		return RemoteRegion{}, err
	}
	for _, r := range rs {
		if r.Label == label {
			return r, nil
		}
	}
	return RemoteRegion{}, fmt.Errorf("region %q of peer %q: %w", label, name, ErrNotFound)
}

// RemoteRegions lists the regions of a loaded peer.
func (a *Agent) RemoteRegions(name string) ([]RemoteRegion, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	p := a.peers[name]
	if p == nil || p.state != PeerLoaded {
		return nil, fmt.Errorf("regions of peer %q: not loaded: %w", name, ErrNotFound)
	}
	return slices.Clone(p.regions), nil
}

// Peers lists the known peers by name: loaded and failed ones, and those that
// only connected to this agent.
func (a *Agent) Peers() []PeerInfo {
	a.mu.RLock()
	defer a.mu.RUnlock()
	inbound := map[inboundKey]PeerInfo{}
	for k, in := range a.inbound {
		inbound[k] = *in
	}
	out := make([]PeerInfo, 0, len(a.peers)+len(inbound))
	for _, p := range a.peers {
		info := PeerInfo{
			Name: p.Name, Incarnation: p.Incarnation, HostID: p.HostID,
			Transport: p.transport.Name(), State: p.state, Reason: p.reason, Since: p.since,
			Traffic:    a.paths.find(p.Name, p.transport.Name()),
			Candidates: slices.Clone(p.chosen.candidates), Test: p.test,
		}
		for k, in := range inbound {
			if k.name == p.Name && k.incarnation == p.Incarnation {
				info.Inbound += in.Inbound
				delete(inbound, k)
			}
		}
		out = append(out, info)
	}
	for _, in := range inbound {
		out = append(out, in)
	}
	slices.SortFunc(out, func(x, y PeerInfo) int {
		return strings.Compare(x.Name+"\x00"+x.Incarnation+"\x00"+x.Transport, y.Name+"\x00"+y.Incarnation+"\x00"+y.Transport)
	})
	return out
}

type inboundKey struct{ name, incarnation, transport string }

// ErrRemoteClosed is the cause of a lost peer whose agent was closed in order, as when a worker
// restarts. It is an [ErrRemoteDisconnect].
var ErrRemoteClosed = fmt.Errorf("the peer's agent was closed: %w", ErrRemoteDisconnect)

// peerDown marks an outgoing peer failed after its connection broke.
func (a *Agent) peerDown(r Remote, cause error) {
	a.mu.Lock()
	p := a.peers[r.Name]
	if p == nil || p.Generation != r.Generation || p.state != PeerLoaded {
		a.mu.Unlock()
		return
	}
	p.state, p.reason, p.since = PeerFailed, cause.Error(), time.Now()
	a.mu.Unlock()
	a.stats.peerDowns.Add(1)
	a.log.Log(context.Background(), loss(cause), "nixl peer lost", "peer", r.Name, "incarnation", r.Incarnation, "transport", p.transport.Name(), "error", cause)
	p.transport.Disconnect(r, cause)
	a.downs.push(PeerDown{Peer: r.Name, Incarnation: r.Incarnation, Transport: p.transport.Name(), Cause: cause, At: time.Now()})
}

// loss is how loudly the log tells of a lost peer: one that took its leave is no reason to
// worry.
func loss(cause error) slog.Level {
	if errors.Is(cause, ErrRemoteClosed) {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

func (a *Agent) inboundUp(transport string, from Identity) {
	k := inboundKey{from.Name, from.Incarnation, transport}
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.inbound[k]
	if in == nil {
		in = &PeerInfo{
			Name: from.Name, Incarnation: from.Incarnation, HostID: from.HostID, Transport: transport,
			State: PeerInbound, Reason: "connected to this agent", Since: time.Now(),
		}
		a.inbound[k] = in
	}
	in.Inbound++
}

func (a *Agent) inboundDown(transport string, from Identity, cause error) {
	k := inboundKey{from.Name, from.Incarnation, transport}
	a.mu.Lock()
	if in := a.inbound[k]; in != nil {
		if in.Inbound--; in.Inbound <= 0 {
			delete(a.inbound, k)
		}
	}
	a.mu.Unlock()
	if errors.Is(cause, ErrUnused) {
		return // it connects again when it needs something
	}
	if cause != nil {
		a.stats.peerDowns.Add(1)
		a.log.Warn("nixl inbound peer lost", "peer", from.Name, "incarnation", from.Incarnation, "transport", transport, "error", cause)
	}
	a.downs.push(PeerDown{Peer: from.Name, Incarnation: from.Incarnation, Transport: transport, Inbound: true, Cause: cause, At: time.Now()})
}

// Notify delivers a message to the peer's agent and returns when that agent has
// accepted it, or with an error when ctx ends or the peer fails; the message may or
// may not arrive then. A message sent after Notify has returned, or after a
// transfer has ended, arrives later than theirs. An agent may notify itself.
func (a *Agent) Notify(ctx context.Context, name string, msg []byte) error {
	if len(msg) > a.limits.NotifySize {
		return fmt.Errorf("notify %q: %d bytes, at most %d: %w", name, len(msg), a.limits.NotifySize, ErrInvalidParam)
	}
	if name == a.self.Name {
		return a.notifySelf(ctx, msg)
	}
	p := a.current(name)
	if p == nil {
		return fmt.Errorf("notify %q: peer is not loaded: %w", name, ErrNotFound)
	}
	if err := p.transport.Notify(ctx, p.Remote, msg); err != nil {
		if ctx.Err() != nil && !errors.Is(err, ErrRemoteDisconnect) {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("notify %q: %w", name, err)
	}
	a.stats.notifyOut.Add(1)
	return nil
}
