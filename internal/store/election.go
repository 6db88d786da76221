package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	// electRetry is the pause after each turn, be it a failed campaign or a leadership that
	// ended. It gives other candidates their turn.
	electRetry = 500 * time.Millisecond
	// resignTimeout bounds giving up the leadership when etcd does not answer;
	// the lease ends it otherwise.
	resignTimeout = 2 * time.Second
)

// errDeposed is the cause lead's context ends with when the leadership is lost.
var errDeposed = errors.New("leadership lost")

// Elect campaigns at prefix and runs lead while this candidate leads, again and
// again until ctx ends or the candidate's lease does. It returns the cause of
// ctx, [ErrClosed], or [ErrLeaseNotFound], after which a caller with a new lease
// calls it again. value is what [Leader] reports to others.
//
// The context of lead ends when the leadership is lost, which includes not
// having been able to renew the lease for its TTL. Elect waits for lead before
// it does anything else, so lead should return quickly then. Other errors of
// lead only end this turn.
func Elect(ctx context.Context, s ReadWriter, prefix, value string, lease cluster.InstanceID, lead func(context.Context) error) error {
	turn := electByKeys
	if e, ok := s.(*Etcd); ok {
		turn = e.electOnce
	}
	for {
		err := turn(ctx, s, prefix, value, lease, lead)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrLeaseNotFound), errors.Is(err, ErrClosed):
			return fmt.Errorf("elect at %s: %w", prefix, err)
		}
		if e, ok := s.(*Etcd); ok && err != nil {
			e.log.Warn("election turn ended", "prefix", prefix, "err", err)
		}
		sleep(ctx, electRetry)
	}
}

// Leader returns the value of the candidate that leads at prefix, or
// [ErrNotFound] when there is none.
func Leader(ctx context.Context, s Reader, prefix string) (value string, err error) {
	kv, err := firstCandidate(ctx, s, prefix)
	return string(kv.Value), err
}

// Leads reports whether the candidate with this lease leads at prefix. Its answer is about a moment
// between the call and the return.
func Leads(ctx context.Context, s Reader, prefix string, lease cluster.InstanceID) (bool, error) {
	kv, err := firstCandidate(ctx, s, prefix)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && kv.Key == candidateKey(prefix, lease), err
}

// firstCandidate returns the longest-standing candidate. Candidates write their
// key once, so the revisions of last change are those of creation.
func firstCandidate(ctx context.Context, s Reader, prefix string) (KV, error) {
	kvs, _, err := s.List(ctx, prefix+"/")
	if err != nil {
		return KV{}, err
	}
	if len(kvs) == 0 {
		return KV{}, fmt.Errorf("leader of %s: %w", prefix, ErrNotFound)
	}
	return slices.MinFunc(kvs, func(a, b KV) int { return cmp.Compare(a.ModRevision, b.ModRevision) }), nil
}

// electOnce campaigns once and leads until something ends it.
func (e *Etcd) electOnce(ctx context.Context, _ ReadWriter, prefix, value string, lease cluster.InstanceID, lead func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	// The session's client ends with ctx: a cancelled campaign resigns in its
	// client's context, which would wait for an unreachable etcd for ever.
	client := clientv3.NewCtxClient(ctx)
	client.KV, client.Watcher = e.client.KV, e.client.Watcher
	client.Lease = clientv3.NewLeaseFromLeaseClient(clientv3.RetryLeaseClient(e.client), e.client, e.timeout)
	defer client.Lease.Close()
	if _, _, err := e.LeaseTTL(ctx, lease); err != nil {
		return err
	}
	session, err := concurrency.NewSession(client, concurrency.WithLease(leaseID(lease)))
	if err != nil {
		return e.explain(ctx, "campaign at", prefix, err)
	}
	defer session.Orphan() // the lease is the caller's
	defer context.AfterFunc(session.Ctx(), func() { cancel(errDeposed) })()

	election := concurrency.NewElection(session, prefix)
	key := candidateKey(prefix, lease)
	defer e.resign(key)
	// A candidate waits for the deletion of keys from a revision on. An etcd that came back
	// with an old backup gets there late or never, so that each return asks for a new campaign.
	campaign, end := context.WithCancelCause(e.login.watching(ctx))
	defer end(nil)
	standing := context.AfterFunc(e.health.current(), func() { end(errEpoch) })
	if err := election.Campaign(campaign, value); err != nil {
		return e.explain(campaign, "campaign at", prefix, err)
	}
	standing()
	return leadWhileKept(ctx, e, key, lead)
}

func (e *Etcd) resign(key string) {
	ctx, cancel := context.WithTimeout(e.life.ctx, resignTimeout)
	defer cancel()
	ctx, done := e.WhileAnswering(ctx)
	defer done()
	if err := e.Delete(ctx, key); err != nil {
		e.log.Debug("cannot give up leadership, it ends with the lease", "key", key, "err", err)
	}
}

// electByKeys is one turn of the same election in terms of [Store].
func electByKeys(ctx context.Context, s ReadWriter, prefix, value string, lease cluster.InstanceID, lead func(context.Context) error) error {
	key := candidateKey(prefix, lease)
	watcher, err := s.Watch(ctx, prefix+"/")
	if err != nil {
		return err
	}
	defer watcher.Close()
	defer func() { // also when creating it failed, which leaves open whether it is there
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
		defer cancel()
		_ = s.Delete(ctx, key) // the lease ends it otherwise
	}()
	if _, err := s.Create(ctx, key, []byte(value), WithLease(lease)); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	for range watcher.Events() {
		first, err := firstCandidate(ctx, s, prefix)
		if err != nil {
			return err
		}
		if first.Key == key {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			if h, ok := s.(leaseHolder); ok {
				defer deposeAt(func() (time.Time, bool) { return h.holds(lease) }, cancel)()
			}
			return leadWhileKept(ctx, s, key, lead)
		}
	}
	return context.Cause(ctx)
}

// leaseHolder is a store that can be cut off, while others see its leases end.
type leaseHolder interface {
	// holds returns until when nobody ends the lease; ok is false if another process renews it.
	holds(id cluster.InstanceID) (until time.Time, ok bool)
}

// deposeAt deposes a leader when its lease may have ended. The caller stops that.
func deposeAt(holds func() (time.Time, bool), depose context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			until, ok := holds()
			if !ok {
				return
			}
			if time.Until(until) <= 0 {
				depose(errDeposed)
				return
			}
			sleep(ctx, time.Until(until))
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func candidateKey(prefix string, lease cluster.InstanceID) string {
	return prefix + "/" + lease.String()
}

// leadWhileKept runs lead until it returns, ctx ends, or the candidate's key is
// gone.
func leadWhileKept(ctx context.Context, s Reader, key string, lead func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watcher, err := s.Watch(ctx, key)
	if err != nil {
		return err
	}
	kept := make(chan struct{}) // closed when the key is no longer watched
	go func() {
		defer close(kept)
		for ev := range watcher.Events() {
			if ev.Type == Delete || ev.Type == Resync && len(ev.All) == 0 {
				cancel(errDeposed)
				return
			}
		}
	}()
	err = lead(ctx)
	if err == nil {
		err = context.Cause(ctx)
	}
	watcher.Close()
	<-kept
	return err
}
