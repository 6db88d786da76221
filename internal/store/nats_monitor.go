package store

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	// natsInterval is the interval at which the leader is asked. Leases are observed then,
	// so it is shorter than observedGap.
	natsInterval = 500 * time.Millisecond
	// natsKeepDead is how long a key or lease that is gone stays in the stream, so that
	// whoever was away for less reads all changes.
	natsKeepDead = 10 * time.Minute
	natsPurges   = 256 // subjects at a time
)

// monitor asks the stream's leader again and again until ctx ends. While it answers, leases
// that nobody renews are ended, and what is long gone is purged.
func (n *NATS) monitor(ctx context.Context) {
	retry := time.Duration(0)
	for {
		pause := natsInterval
		if retry > 0 {
			pause = retry
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-n.check:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		_, err := func() (time.Duration, error) {
			limited, cancel := context.WithTimeout(ctx, monitorTimeout)
			defer cancel()
			return n.Ping(limited)
		}()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			retry = min(max(2*retry, monitorRetryMin), monitorRetryMax)
			if n.health.failed(err, time.Now().Add(retry)) {
				n.logger.Warn("the store in NATS does not answer", "nats", n.name, "err", err)
			}
			continue
		}
		retry = 0
		if down, _ := n.health.answered(nil); down > 0 {
			n.logger.Info("the store in NATS is back", "nats", n.name, "down", down.Round(time.Millisecond))
			n.mu.Lock()
			n.state.observe(time.Now())
			n.state.renewAll()
			n.mu.Unlock()
		}
		n.expire(ctx)
		n.purge(ctx)
	}
}

// expire ends leases whose beats stood still for their TTL, if they still do when the server
// takes the message.
func (n *NATS) expire(ctx context.Context) {
	n.mu.Lock()
	n.state.observe(time.Now())
	ids := n.state.overdue()
	n.mu.Unlock()
	// Others end the same leases: each begins with another one.
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		rev, err := n.endOverdue(ctx, id)
		switch {
		case err != nil:
			n.logger.Debug("a lease has not been ended", "lease", id, "err", err)
			return // the next turn does
		case rev > 0:
			n.logger.Info("a lease has expired", "nats", n.name, "lease", id)
		}
	}
}

// endOverdue ends a lease unless it has been renewed; the revision is 0 then.
func (n *NATS) endOverdue(ctx context.Context, id cluster.InstanceID) (Revision, error) {
	return doNATS(ctx, n, "end lease", id.String(), func(ctx context.Context) (Revision, error) {
		return n.transact(ctx, func(now natsCondition) (*nats.Msg, error) {
			if !slices.Contains(n.state.overdue(), id) {
				return nil, nil
			}
			return n.marker(natsLeases+id.String(), now), nil
		})
	})
}

// purge removes what is long gone. Of all processes, the one that writes the message with its
// subjects does it. That message is the last of the stream and stays, so whoever reads sees
// the gap before it.
func (n *NATS) purge(ctx context.Context) {
	subjects := n.purgeable()
	if len(subjects) == 0 {
		return
	}
	mine, err := doNATS(ctx, n, "purge", "", func(ctx context.Context) (Revision, error) {
		return n.transact(ctx, func(now natsCondition) (*nats.Msg, error) {
			if subjects = n.purgeableLocked(); len(subjects) == 0 {
				return nil, nil
			}
			body, err := json.Marshal(subjects)
			return n.message(natsPurge, body, now), err
		})
	})
	if err != nil || mine == 0 {
		return
	}
	for subject, seq := range subjects {
		_, err := aside(ctx, n, func(ctx context.Context) (struct{}, error) {
			limited, cancel := context.WithTimeout(ctx, n.timeout)
			defer cancel()
			s, err := n.js.Stream(limited, n.stream)
			if err == nil {
				err = s.Purge(limited, jetstream.WithPurgeSubject(n.prefix+subject), jetstream.WithPurgeSequence(uint64(seq)+1))
			}
			return struct{}{}, err
		})
		if err != nil {
			n.logger.Debug("a subject has not been purged", "nats", n.name, "subject", subject, "err", err)
			n.mu.Lock()
			if _, there := n.dead[subject]; !there {
				n.dead[subject] = tomb{seq: seq} // for the next turn
			}
			n.mu.Unlock()
		}
	}
}

func (n *NATS) purgeable() map[string]Revision {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.purgeableLocked()
}

// purgeableLocked returns subjects that are gone for long, with their last messages.
func (n *NATS) purgeableLocked() map[string]Revision {
	out := map[string]Revision{}
	if n.state.clock-n.purged < natsKeepDead/10 {
		return out
	}
	for subject, t := range n.dead {
		if n.state.clock-t.seen >= natsKeepDead && len(out) < natsPurges {
			out[subject] = t.seq
		}
	}
	return out
}
