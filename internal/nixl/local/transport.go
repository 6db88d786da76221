package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

// transport is the local transport of one agent: the initiator of its transfers
// and the target of its peers'.
//
// Lock order: link.mu, an agent's lock, transport.mu. The mu of two transports
// are never held together: two agents may attach to each other at the same time.
type transport struct {
	reg  *Registry
	host nixl.Host
	wg   sync.WaitGroup // running jobs

	links wire.Sessions[*link] // to peers

	mu      sync.Mutex
	started bool
	closed  bool
	inbound map[*link]struct{} // from peers
}

func (t *transport) Name() string { return Name }

func (t *transport) Start(h nixl.Host) ([]byte, error) {
	t.host = h
	if err := t.reg.add(keyOf(h.Self()), t); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = true
	return t.reg.id[:], nil
}

// Direct reports whether the agent's memory of a device is copied without host memory.
func (t *transport) Direct(m nixl.DeviceMemory) bool {
	_, ok := m.(nixl.DeviceCopier)
	return ok
}

func keyOf(id nixl.Identity) agentKey { return agentKey{id.Name, id.Incarnation} }

func (t *transport) Reach(r nixl.Remote) (string, error) {
	switch {
	case r.Conn == nil:
		return "", fmt.Errorf("peer does not offer it: %w", nixl.ErrNotSupported)
	case !bytes.Equal(r.Conn, t.reg.id[:]):
		return "", fmt.Errorf("peer is in another process: %w", nixl.ErrNotSupported)
	case t.reg.find(keyOf(r.Identity)) == nil:
		return "", fmt.Errorf("peer is not in this process any more: %w", nixl.ErrNotFound)
	}
	return "same process", nil
}

func (t *transport) Attach(r nixl.Remote) {
	l := newLink(t, r, t.reg.find(keyOf(r.Identity)))
	if l.target != nil && !l.target.join(l) {
		l.target = nil
	}
	if !t.links.Attach(r, l) && l.target != nil {
		l.target.leave(l)
	}
}

// join adds a link of a peer; false when this transport is closed.
func (t *transport) join(l *link) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.inbound[l] = struct{}{}
	return true
}

func (t *transport) leave(l *link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.inbound, l)
}

// link returns the link of an attached generation and counts a job.
func (t *transport) link(r nixl.Remote) (*link, error) {
	return t.links.Use(r, func(*link) { t.wg.Add(1) })
}

func (t *transport) Submit(r nixl.Remote, j *nixl.Job) {
	l, err := t.link(r)
	if err != nil {
		j.Finish(err)
		return
	}
	go func() {
		defer t.wg.Done()
		l.run(j)
	}()
}

func (t *transport) Notify(ctx context.Context, r nixl.Remote, msg []byte) error {
	l, err := t.link(r)
	if err != nil {
		return err
	}
	defer t.wg.Done()
	if err := l.open(); err != nil {
		return err
	}
	return l.deliver(ctx.Done(), msg)
}

func (t *transport) OpenProbe(_ context.Context, r nixl.Remote) (nixl.Probe, error) {
	l, err := t.link(r)
	if err != nil {
		return nixl.Probe{}, err
	}
	defer t.wg.Done()
	if err := l.open(); err != nil {
		return nixl.Probe{}, err
	}
	return l.target.host.OpenProbe(t.host.Self().Name)
}

func (t *transport) CloseProbe(r nixl.Remote, id nixl.TicketID) {
	if l, err := t.link(r); err == nil {
		defer t.wg.Done()
		if l.open() == nil {
			l.target.host.CloseProbe(id)
		}
	}
}

func (t *transport) Disconnect(r nixl.Remote, cause error) {
	if l, found := t.links.Forget(r); found {
		var why error
		if errors.Is(cause, nixl.ErrUnused) {
			why = cause
		}
		l.close(cause, why)
	}
}

func (t *transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		t.wg.Wait()
		return nil
	}
	t.closed = true
	started := t.started
	in := make([]*link, 0, len(t.inbound))
	for l := range t.inbound {
		in = append(in, l)
	}
	t.mu.Unlock()

	if started {
		t.reg.remove(keyOf(t.host.Self()), t)
	}
	for _, l := range t.links.Close() {
		l.close(fmt.Errorf("agent closes: %w", nixl.ErrCanceled), nil)
	}
	for _, l := range in {
		// The initiator learns that its peer is gone.
		gone := fmt.Errorf("peer %q: %w", l.remote.Name, nixl.ErrRemoteClosed)
		if l.close(gone, nil) {
			l.source.host.PeerDown(l.remote, gone)
		}
	}
	t.wg.Wait()
	return nil
}
