package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Create implements [Store].
func (n *NATS) Create(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return n.putIf(ctx, "create", key, value, condition{absent: true}, opts)
}

// CompareAndSwap implements [Store].
func (n *NATS) CompareAndSwap(ctx context.Context, key string, expect Revision, value []byte, opts ...PutOption) (Revision, error) {
	return n.putIf(ctx, "swap", key, value, condition{swap: true, expect: expect}, opts)
}

// Put implements [Store].
func (n *NATS) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return n.putIf(ctx, "put", key, value, condition{}, opts)
}

// createUnless implements [exclusiveCreator].
func (n *NATS) createUnless(ctx context.Context, key string, value []byte, blockers []string, opts []PutOption) (Revision, error) {
	return n.putIf(ctx, "create", key, value, condition{absent: true, blockers: blockers}, opts)
}

// putIf writes a key if a condition holds. A lease is looked at before and after, because the
// server does not know leases: if it ends in between, its end takes the key.
func (n *NATS) putIf(ctx context.Context, verb, key string, value []byte, c condition, opts []PutOption) (Revision, error) {
	o := applyPutOptions(opts)
	if key == "" || len(natsEscape(key)) > natsLongestSubject {
		return 0, fmt.Errorf("%s %q: a key has 1 to %d bytes, of which each one but letters, digits, /, - and _ counts three times", verb, key, natsLongestSubject)
	}
	message := func(now natsCondition) (*nats.Msg, error) {
		return n.keyMessage(key, value, o.lease, now), n.state.allowed(key, c, o.lease)
	}
	return doNATS(ctx, n, verb, key, func(ctx context.Context) (rev Revision, err error) {
		switch {
		case len(c.blockers) > 0:
			rev, err = n.transact(ctx, message)
		case c.absent || c.swap:
			rev, err = n.swap(ctx, key, message)
		default:
			rev, err = n.writeAlways(ctx, message)
		}
		if err == nil && o.lease != 0 {
			err = n.keeps(ctx, o.lease, rev)
		}
		return rev, err
	})
}

// Delete implements [Store].
func (n *NATS) Delete(ctx context.Context, key string) error {
	_, err := doNATS(ctx, n, "delete", key, func(ctx context.Context) (Revision, error) {
		return n.writeAlways(ctx, func(c natsCondition) (*nats.Msg, error) {
			if _, there := n.state.data[key]; !there {
				return nil, nil
			}
			return n.marker(natsKeys+natsEscape(key), c), nil
		})
	})
	return err
}

// attempt has a message made under the mutex, in the present state. An error, or no message,
// is final only in a state that is current: else attempt catches up and tries again.
func (n *NATS) attempt(ctx context.Context, message func() (*nats.Msg, error)) (*nats.Msg, error) {
	for current := false; ; current = true {
		n.mu.Lock()
		m, err := message()
		n.mu.Unlock()
		if err == nil && m != nil || current {
			return m, err
		}
		if err := n.catchUp(ctx); err != nil {
			return nil, err
		}
	}
}

// writeAlways writes the message, whatever is written beside it.
func (n *NATS) writeAlways(ctx context.Context, message func(natsCondition) (*nats.Msg, error)) (Revision, error) {
	m, err := n.attempt(ctx, func() (*nats.Msg, error) { return message(natsCondition{}) })
	if err != nil || m == nil {
		return 0, err
	}
	return n.write(ctx, m)
}

// swap writes the message if its key does not change between message and that.
func (n *NATS) swap(ctx context.Context, key string, message func(natsCondition) (*nats.Msg, error)) (Revision, error) {
	subject := natsKeys + natsEscape(key)
	var told *Revision // by the server: the last message, of which the state says the rest
	for attempt := 0; ; attempt++ {
		m, err := n.attempt(ctx, func() (*nats.Msg, error) {
			last := n.dead[subject].seq // 0 for a key that never was
			if kv, there := n.state.data[key]; there {
				last = kv.ModRevision
			} else if told != nil {
				last = *told
			}
			return message(lastOf(last))
		})
		if err != nil {
			return 0, err
		}
		rev, err := n.write(ctx, m)
		if !conflict(err) {
			return rev, err
		}
		told = wrongSequence(err)
		if err := n.overtaken(ctx, attempt); err != nil {
			return 0, err
		}
	}
}

// transact writes the message if nothing at all is written between message and that. Who is
// far from the server may have to try often.
func (n *NATS) transact(ctx context.Context, message func(natsCondition) (*nats.Msg, error)) (Revision, error) {
	select { // those of one process would only overtake each other
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for attempt := 0; ; attempt++ {
		m, err := n.attempt(ctx, func() (*nats.Msg, error) { return message(at(n.applied.seq)) })
		if err != nil || m == nil {
			return 0, err
		}
		rev, err := n.write(ctx, m)
		if !conflict(err) {
			return rev, err
		}
		if err := n.overtaken(ctx, attempt); err != nil {
			return 0, err
		}
	}
}

// overtaken catches up with those who were faster.
func (n *NATS) overtaken(ctx context.Context, attempt int) error {
	if attempt > 0 {
		sleep(ctx, natsPause(attempt))
	}
	return n.catchUp(ctx)
}

var natsLastSequence = regexp.MustCompile(`: (\d+)$`)

// wrongSequence returns the right sequence that an error names, or nil.
func wrongSequence(err error) *Revision {
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != natsWrongSequence {
		return nil
	}
	m := natsLastSequence.FindStringSubmatch(api.Description)
	if m == nil {
		return nil
	}
	seq, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return nil
	}
	return (*Revision)(&seq)
}
