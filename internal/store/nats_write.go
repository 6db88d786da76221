package store

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Create implements [Store].
func (n *NATS) Create(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return n.putIf(ctx, "create", key, value, condition{absent: true}, opts)
}

// createUnless implements [exclusiveCreator].
func (n *NATS) createUnless(ctx context.Context, key string, value []byte, blockers []string, opts []PutOption) (Revision, error) {
	return n.putIf(ctx, "create", key, value, condition{absent: true, blockers: blockers}, opts)
}

// CompareAndSwap implements [Store].
func (n *NATS) CompareAndSwap(ctx context.Context, key string, expect Revision, value []byte, opts ...PutOption) (Revision, error) {
	return n.putIf(ctx, "swap", key, value, condition{swap: true, expect: expect}, opts)
}

// Put implements [Store]. It does not wait for the state, except to know the lease.
func (n *NATS) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	o := applyPutOptions(opts)
	if err := checkNATSKey("put", key); err != nil {
		return 0, err
	}
	return doNATS(ctx, n, "put", key, func(ctx context.Context) (Revision, error) {
		if o.lease == 0 {
			return n.publish(ctx, n.keyMessage(key, value, 0, natsCondition{}))
		}
		_, rev, err := n.underLease(ctx, o.lease, func(c natsCondition) *nats.Msg { return n.keyMessage(key, value, o.lease, c) })
		return rev, err
	})
}

func (n *NATS) putIf(ctx context.Context, verb, key string, value []byte, c condition, opts []PutOption) (Revision, error) {
	o := applyPutOptions(opts)
	if err := checkNATSKey(verb, key); err != nil {
		return 0, err
	}
	return doNATS(ctx, n, verb, key, func(ctx context.Context) (Revision, error) {
		return n.transact(ctx, func(now natsCondition) (*nats.Msg, error) {
			return n.keyMessage(key, value, o.lease, now), n.state.allowed(key, c, o.lease)
		})
	})
}

func checkNATSKey(verb, key string) error {
	if key == "" || len(natsEscape(key)) > natsLongestSubject {
		return fmt.Errorf("%s %q: a key has 1 to %d bytes, of which each one but letters, digits, /, - and _ counts three times", verb, key, natsLongestSubject)
	}
	return nil
}

// Delete implements [Store].
func (n *NATS) Delete(ctx context.Context, key string) error {
	_, err := doNATS(ctx, n, "delete", key, func(ctx context.Context) (Revision, error) {
		n.mu.Lock()
		_, there := n.state.data[key]
		n.mu.Unlock()
		if !there { // then it must be so, and no message is needed
			if err := n.catchUp(ctx); err != nil {
				return 0, err
			}
			n.mu.Lock()
			_, there = n.state.data[key]
			n.mu.Unlock()
			if !there {
				return 0, nil
			}
		}
		return n.publish(ctx, n.marker(natsKeys+natsEscape(key), natsCondition{}))
	})
	return err
}

// transact writes the message that check returns, if nothing is written between check and
// that. check runs under the mutex, in a state that may be old: the server refuses the message
// then. An error of check, or no message, is the result only if the state was not old.
func (n *NATS) transact(ctx context.Context, check func(natsCondition) (*nats.Msg, error)) (Revision, error) {
	select { // those of one process would only overtake each other
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	current := false
	for attempt := 0; ; attempt++ {
		if err := n.await(ctx, func() bool { return n.session != nil && n.applied.seq >= n.wrote }); err != nil {
			return 0, err
		}
		n.mu.Lock()
		seq := n.applied.seq
		m, err := check(at(seq))
		n.mu.Unlock()
		if err != nil || m == nil {
			if current {
				return 0, err
			}
			if err := n.catchUp(ctx); err != nil {
				return 0, err
			}
			current = true
			continue
		}
		rev, err := n.publish(ctx, m)
		switch {
		case err == nil:
			n.mu.Lock()
			n.wrote = rev
			n.mu.Unlock()
			return rev, nil
		case !conflict(err):
			return 0, err
		}
		current = false
		if attempt > 0 {
			sleep(ctx, natsPause(attempt))
		}
		if err := n.catchUp(ctx); err != nil {
			return 0, err
		}
	}
}

// underLease writes a message if a lease is held when the server takes it.
func (n *NATS) underLease(ctx context.Context, id cluster.InstanceID, message func(natsCondition) *nats.Msg) (ttl time.Duration, rev Revision, err error) {
	current := false
	for attempt := 0; ; attempt++ {
		n.mu.Lock()
		lease, err := n.state.lease(id)
		if err == nil {
			ttl = lease.ttl
		}
		c := lastOf(natsLeases+id.String(), n.grants[id])
		n.mu.Unlock()
		if err == nil {
			if rev, err = n.publish(ctx, message(c)); !conflict(err) {
				return ttl, rev, err
			}
			if natsCode(err) == natsSubjectBusy { // others write under this lease, too
				sleep(ctx, natsPause(attempt))
				continue
			}
		} else if current {
			return 0, 0, err
		}
		if err := n.catchUp(ctx); err != nil {
			return 0, 0, err
		}
		current = true
	}
}

// GrantLease implements [Store].
func (n *NATS) GrantLease(ctx context.Context, ttl time.Duration) (Lease, error) {
	if ttl <= 0 {
		return Lease{}, fmt.Errorf("grant lease: ttl %s is not positive", ttl)
	}
	return doNATS(ctx, n, "grant lease", "", func(ctx context.Context) (Lease, error) {
		id := newLeaseID()
		subject := natsLeases + id.String()
		rev, err := n.publish(ctx, n.message(subject, []byte(ttl.String()), lastOf(subject, 0)))
		if err == nil {
			err = n.await(ctx, func() bool { return n.applied.seq >= rev })
		}
		return Lease{ID: id, TTL: ttl}, err
	})
}

// KeepLease implements [Store].
func (n *NATS) KeepLease(ctx context.Context, ttl time.Duration, log *slog.Logger) (*LeaseKeeper, error) {
	return keepLease(ctx, n.life, n, ttl, log)
}

// keepAlive implements [leaseServer].
func (n *NATS) keepAlive(ctx context.Context, id cluster.InstanceID) (time.Duration, error) {
	return doNATS(ctx, n, "keep alive lease", id.String(), func(ctx context.Context) (time.Duration, error) {
		ttl, _, err := n.underLease(ctx, id, func(c natsCondition) *nats.Msg { return n.message(natsBeats+id.String(), nil, c) })
		return ttl, err
	})
}

// RevokeLease implements [Store].
func (n *NATS) RevokeLease(ctx context.Context, id cluster.InstanceID) error {
	_, err := doNATS(ctx, n, "revoke lease", id.String(), func(ctx context.Context) (Revision, error) {
		return n.transact(ctx, func(now natsCondition) (*nats.Msg, error) {
			_, err := n.state.lease(id)
			return n.marker(natsLeases+id.String(), now), err
		})
	})
	return err
}
