package events

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// connected and disconnected run on the library's callback goroutine, in order.
func (n *NATS) connected(nc *nats.Conn) {
	limit, server := nc.MaxPayload(), nc.ConnectedUrlRedacted()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since.IsZero() {
		return
	}
	n.maxPayload.Store(limit)
	n.up.Store(true)
	n.log.Info("nats connected", "server", server, "after", time.Since(n.since).Round(time.Millisecond))
	n.since = time.Time{}
	close(n.online)
	n.offline = make(chan struct{})
}

func (n *NATS) disconnected(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.up.Store(false)
	if n.since.IsZero() {
		n.since = time.Now()
		n.online = make(chan struct{})
		close(n.offline)
	}
	n.reason = "connection closed"
	if err != nil {
		n.reason = err.Error()
	}
	n.log.Warn("nats disconnected", "reason", n.reason)
}

func (n *NATS) stillDown(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || n.reason == err.Error() {
		return
	}
	n.reason = err.Error() // logged once, not for each attempt
	n.log.Warn("nats not reachable", "reason", n.reason)
}

func (n *NATS) asyncError(sub *nats.Subscription, err error) {
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	if errors.Is(err, nats.ErrSlowConsumer) {
		n.log.Debug("events dropped, handler too slow", "subject", subject)
		return
	}
	n.log.Warn("nats error", "subject", subject, "err", err)
}

// waitOnline waits for a connection and returns true. It returns false when done or the
// bus is closed first.
func (n *NATS) waitOnline(done <-chan struct{}) bool {
	for {
		n.mu.Lock()
		online := n.online
		n.mu.Unlock()
		select {
		case <-online:
		case <-done:
			return false
		case <-n.closing:
			return false
		}
		if n.nc.IsConnected() {
			return true
		}
		// The connection broke; its callback will replace the channel.
		select {
		case <-time.After(10 * time.Millisecond):
		case <-done:
			return false
		case <-n.closing:
			return false
		}
	}
}

// call runs a request to the server on its own goroutine, because the library may block
// on a full socket longer than ctx allows.
func (n *NATS) call(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if err := n.spawn(func() { done <- f() }); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// spawn runs f on a goroutine that Close waits for. f must return soon.
func (n *NATS) spawn(f func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrClosed
	}
	n.calls.Go(f)
	return nil
}
