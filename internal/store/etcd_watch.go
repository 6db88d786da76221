package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	relistMin = 100 * time.Millisecond
	relistMax = 2 * time.Second
	// relistSpread keeps many watchers from listing in the same instant when
	// etcd comes back.
	relistSpread = 50 * time.Millisecond
)

// errEpoch ends a stream because the connection's epoch ended.
var errEpoch = errors.New("etcd was away or replaced")

// Watch implements [Store].
func (e *Etcd) Watch(ctx context.Context, prefix string) (*Watcher, error) {
	epoch := e.health.current()
	all, rev, err := e.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	w, err := newWatcher(ctx, e.life, all, rev, e.health.trouble, func(ctx context.Context, w *Watcher) {
		e.follow(ctx, epoch, w, prefix, rev)
	})
	if err != nil {
		return nil, e.explain(ctx, "watch", prefix, err)
	}
	return w, nil
}

// follow feeds w with the changes after rev until ctx ends. A stream can end through a
// compaction, a member without a leader or a new epoch. follow then lists the prefix
// again and continues from there, so that no change is missed.
func (e *Etcd) follow(ctx, epoch context.Context, w *Watcher, prefix string, rev Revision) {
	pause := relistMin // after a stream that ended immediately
	for {
		opened := time.Now()
		reason := e.stream(ctx, epoch, w, prefix, rev)
		if ctx.Err() != nil {
			return
		}
		e.log.Debug("watch interrupted, listing again", "prefix", prefix, "reason", reasonOf(reason))
		if !errors.Is(reason, errEpoch) {
			w.failing(e.explain(ctx, "watch", prefix, reason), time.Now())
			if time.Since(opened) > relistMax {
				pause = relistMin
			}
			sleep(ctx, pause)
			pause = min(2*pause, relistMax)
		}
		sleep(ctx, rand.N(relistSpread))
		for retry := relistMin; ; retry = min(2*retry, relistMax) {
			epoch = e.health.current()
			all, listed, err := e.List(ctx, prefix)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				rev = listed
				w.reset(all, listed)
				break
			}
			w.failing(err, time.Now().Add(retry))
			sleep(ctx, retry)
		}
	}
}

// stream passes on events after rev until the stream ends, and returns the reason.
func (e *Etcd) stream(ctx, epoch context.Context, w *Watcher, prefix string, rev Revision) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(epoch, func() { cancel(errEpoch) })()

	// Without a leader, a member would otherwise keep the stream open and send nothing.
	ch := e.client.Watch(e.login.watching(clientv3.WithRequireLeader(ctx)), prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(rev)+1))
	for resp := range ch {
		if err := endsWatch(resp); err != nil {
			return err
		}
		for _, ev := range resp.Events {
			event := Event{Type: Put, KV: fromEtcd(ev.Kv), Revision: Revision(ev.Kv.ModRevision)}
			if ev.Type == mvccpb.Event_DELETE {
				event.Type = Delete
			}
			w.push(event)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("stream closed")
}
