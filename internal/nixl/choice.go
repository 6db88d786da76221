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

// Verdict says what became of a transport when the one for a peer was chosen.
type Verdict uint8

// The verdicts.
const (
	Chosen      Verdict = iota + 1 // used for all transfers to the peer
	NotNeeded                      // a better one reaches the peer; not looked at
	Unsupported                    // cannot reach this peer, and nobody expects it to
	NotForced                      // left out by Config.Force
	Fallen                         // should have reached the peer, and does not
	Disproved                      // a self-test over it failed
)

// String returns a word for tables and metric labels.
func (v Verdict) String() string {
	switch v {
	case Chosen:
		return "chosen"
	case NotNeeded:
		return "not_needed"
	case Unsupported:
		return "unsupported"
	case NotForced:
		return "not_forced"
	case Fallen:
		return "unreachable"
	case Disproved:
		return "disproved"
	}
	return "unknown"
}

// MarshalText returns the word of String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Candidate is a transport of this agent as it was judged for a peer.
type Candidate struct {
	Transport string
	Verdict   Verdict
	Reason    string // how it reaches the peer, or why it does not
	Status    Status // of the error behind Reason; Success without one
}

// Fallback names a transport that should have reached a peer, the one used instead,
// and the status of the error that kept it from that. It is a key of
// [Stats.Fallbacks].
type Fallback struct {
	Wanted, Used string
	Status       Status
}

// UsableTransport is a Transport that knows, once started, why this agent cannot use
// it on this machine: an agent that was forced to such a transport does not start.
type UsableTransport interface {
	Transport
	Usable() error
}

// choice is the outcome of looking at all transports for a peer.
type choice struct {
	transport  Transport // nil: none reaches the peer
	remote     Remote
	reason     string // how it is reached, and why not over better ones
	candidates []Candidate
}

// fallbacks returns the fallbacks of the choice.
func (c choice) fallbacks() (out []Fallback) {
	for _, k := range c.candidates {
		if k.Verdict == Fallen || k.Verdict == Disproved {
			out = append(out, Fallback{Wanted: k.Transport, Used: c.transport.Name(), Status: k.Status})
		}
	}
	return out
}

// choose looks at the transports in the configured order, which is that of
// preference, and takes the first that reaches the peer and was not disproved.
func (a *Agent) choose(m metadata, disproved map[string]error) choice {
	var c choice
	var why []string
	for _, tr := range a.transports {
		k := Candidate{Transport: tr.Name()}
		r := Remote{Identity: m.Identity, Conn: m.conn(tr.Name())}
		if label, found := m.private(); found {
			r.Private = &label
		}
		r.Devices = m.directDevices()
		if c.transport != nil {
			k.Verdict, k.Reason = NotNeeded, "the peer is reached over "+c.transport.Name()
		} else if len(a.force) > 0 && !slices.Contains(a.force, tr.Name()) {
			k.Verdict, k.Reason = NotForced, "not among the forced transports"
		} else if err := disproved[tr.Name()]; err != nil {
			k.Verdict, k.Reason, k.Status = Disproved, err.Error(), StatusOf(err)
		} else if reason, err := tr.Reach(r); err == nil {
			k.Verdict, k.Reason = Chosen, reason
			c.transport, c.remote = tr, r
		} else {
			k.Verdict, k.Reason, k.Status = Unsupported, err.Error(), StatusOf(err)
			if !errors.Is(err, ErrNotSupported) {
				k.Verdict = Fallen
			}
		}
		if c.transport == nil {
			why = append(why, k.Transport+": "+k.Reason)
		} else if k.Verdict == Chosen {
			c.reason = k.Reason
		}
		c.candidates = append(c.candidates, k)
	}
	switch {
	case len(a.transports) == 0:
		c.reason = "none configured"
	case c.transport == nil:
		c.reason = strings.Join(why, "; ")
	case len(why) > 0:
		c.reason += " (" + strings.Join(why, "; ") + ")"
	}
	return c
}

// checkForced reports the first forced transport that this agent cannot use.
func (a *Agent) checkForced() error {
	for _, name := range a.force {
		i := slices.IndexFunc(a.transports, func(t Transport) bool { return t.Name() == name })
		if i < 0 {
			return fmt.Errorf("forced transport %s: this build or system does not have it: %w", name, ErrNotSupported)
		}
		if u, ok := a.transports[i].(UsableTransport); ok {
			if err := u.Usable(); err != nil {
				return fmt.Errorf("forced transport %s: cannot be used here: %w", name, err)
			}
		}
	}
	return nil
}

// announce logs a choice, and counts and warns of what it fell back from. What was
// warned of for the same incarnation is said once.
func (a *Agent) announce(p *peer, regions int, c choice, old *peer) {
	level := slog.LevelInfo
	for _, f := range c.fallbacks() {
		a.stats.fellBack(f)
		if old == nil || old.Incarnation != p.Incarnation || !slices.Contains(old.chosen.fallbacks(), f) {
			level = slog.LevelWarn
		}
	}
	a.log.Log(context.Background(), level, "nixl peer loaded", "peer", p.Name, "incarnation", p.Incarnation,
		"transport", c.transport.Name(), "reason", c.reason, "regions", regions)
}

// PathTest is the latest self-test of the path to a peer.
type PathTest struct {
	At     time.Time
	Result SelfTestResult // of a test that passed
	Err    error
}

// ProvePath runs self-tests with a peer until one passes: a transport that fails its
// test, other than by the peer's end or that of ctx, is not used for this incarnation
// of the peer any more, and the next one is chosen, with a warning. The error is that
// of the last transport.
func (a *Agent) ProvePath(ctx context.Context, peer string) (SelfTestResult, error) {
	for {
		p := a.current(peer)
		res, err := a.SelfTest(ctx, peer)
		if err == nil || p == nil || ctx.Err() != nil || errors.Is(err, ErrNotFound) {
			return res, err
		}
		if errors.Is(err, ErrRemoteDisconnect) || errors.Is(err, ErrCanceled) || errors.Is(err, ErrNotAllowed) {
			return res, err // says nothing about the transport
		}
		if next := a.disprove(p, err); next != nil {
			return res, errors.Join(err, next)
		}
	}
}

// disprove chooses another transport for a peer.
func (a *Agent) disprove(p *peer, cause error) error {
	a.loading.Lock()
	defer a.loading.Unlock()
	a.mu.RLock()
	m := metadata{Identity: p.Identity, conns: p.conns, regions: p.regions}
	a.mu.RUnlock()
	disproved := map[string]error{p.transport.Name(): cause}
	for name, err := range p.disproved {
		disproved[name] = err
	}
	c := a.choose(m, disproved)
	if c.transport == nil {
		return fmt.Errorf("no other transport reaches %q: %s: %w", p.Name, c.reason, ErrNotSupported)
	}
	a.mu.Lock()
	if a.closed || a.peers[p.Name] != p || p.state != PeerLoaded {
		a.mu.Unlock()
		return nil // another one is there by now
	}
	fresh := a.addPeerLocked(m, c)
	fresh.disproved, fresh.test = disproved, p.test
	a.mu.Unlock()
	p.transport.Disconnect(p.Remote, fmt.Errorf("peer %q is reached over %s now: %w", p.Name, c.transport.Name(), ErrRemoteDisconnect))
	a.announce(fresh, len(m.regions), c, p)
	return nil
}
