package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
)

const (
	monitorInterval = time.Second
	monitorTimeout  = 2 * time.Second
	monitorRetryMin = 100 * time.Millisecond
	monitorRetryMax = time.Second
	// silenceLimit is the time etcd may be silent, from the first failed probe, before
	// the contexts of [Etcd.WhileAnswering] end.
	silenceLimit = 2 * time.Second
	// probeKey is read by every probe, as by "etcdctl endpoint health". It is never
	// written.
	probeKey = "health"
)

// health holds the monitor's knowledge of the connection. Watchers start and end their
// streams with its epochs. A new epoch means that a stream of the old one may have missed
// events.
type health struct {
	mu        sync.Mutex
	down      trouble
	epoch     context.Context // cancelled when the next epoch begins
	endEpoch  context.CancelFunc
	clusterID uint64 // as last seen; 0 at first
	revision  int64  // as last seen
	broken    bool   // the connection broke after the last answer

	answering context.Context // cancelled when down has lasted for silenceLimit
	silence   context.CancelCauseFunc
	silent    *time.Timer // nil while etcd answers
}

func newHealth() *health {
	h := &health{}
	h.epoch, h.endEpoch = context.WithCancel(context.Background())
	h.answering, h.silence = context.WithCancelCause(context.Background())
	return h
}

// trouble returns since when etcd has not answered, why, and when the next attempt is
// due.
//
//nolint:revive,staticcheck // the order is that of the question: since when, why, until when
func (h *health) trouble() (since time.Time, err error, next time.Time) {
	if h == nil {
		return time.Time{}, nil, time.Time{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down.since, h.down.err, h.down.next
}

// current returns the context of the running epoch.
func (h *health) current() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epoch
}

// failed records a failed probe and reports whether it is the first.
func (h *health) failed(err error, next time.Time) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first = h.down.since.IsZero(); first {
		h.down.since = time.Now()
		h.silent = time.AfterFunc(silenceLimit, h.fallSilent)
	}
	h.down.err, h.down.next = err, next
	return first
}

// fallSilent ends the contexts of WhileAnswering, unless etcd has just answered.
func (h *health) fallSilent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.silent != nil && time.Since(h.down.since) >= silenceLimit {
		h.silence(fmt.Errorf("%w: no answer since %s: %s", ErrUnavailable, h.down.since.Format(time.TimeOnly), reasonOf(h.down.err)))
	}
}

// whileAnswering derives a context that ends when etcd falls silent.
func (h *health) whileAnswering(ctx context.Context) (context.Context, context.CancelFunc) {
	h.mu.Lock()
	answering := h.answering
	h.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(answering, func() { cancel(context.Cause(answering)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// broke records that the connection broke.
func (h *health) broke() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = true
}

// answered records a successful probe. It begins a new epoch after an outage, even one
// too short for a probe to fail. It also begins one when the endpoint's history is
// another one: the data directory was replaced by an older or empty one.
func (h *health) answered(header *pb.ResponseHeader) (downFor time.Duration, replaced bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if header != nil {
		replaced = h.clusterID != 0 && (header.ClusterId != h.clusterID || header.Revision < h.revision)
		h.clusterID, h.revision = header.ClusterId, header.Revision
	}
	if !h.down.since.IsZero() {
		downFor = time.Since(h.down.since)
	}
	if downFor > 0 || replaced || h.broken {
		h.broken = false
		h.endEpoch()
		h.epoch, h.endEpoch = context.WithCancel(context.Background())
	}
	h.down = trouble{}
	h.stopSilenceLocked()
	if h.answering.Err() != nil {
		h.answering, h.silence = context.WithCancelCause(context.Background())
	}
	return downFor, replaced
}

func (h *health) stopSilenceLocked() {
	if h.silent != nil {
		h.silent.Stop()
		h.silent = nil
	}
}

func (h *health) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endEpoch()
	h.stopSilenceLocked()
	h.silence(ErrClosed)
}

// monitor probes etcd every second, and at once when the connection breaks.
func (e *Etcd) monitor(ctx context.Context) {
	defer e.health.stop()
	conn := e.client.ActiveConnection()
	retry := time.Duration(0) // of a failed probe
	for first := true; ; first = false {
		switch {
		case retry > 0:
			sleep(ctx, retry)
		case !first:
			pause, cancel := context.WithTimeout(ctx, monitorInterval)
			if conn.WaitForStateChange(pause, connectivity.Ready) {
				e.login.suspect()
				e.health.broke()
			}
			cancel()
		}
		if ctx.Err() != nil {
			return
		}
		header, err := e.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			retry = 0
			downFor, replaced := e.health.answered(header)
			if downFor > 0 {
				e.log.Info("etcd is back", "etcd", e.name, "down", downFor.Round(time.Millisecond))
			}
			if replaced {
				e.log.Warn("etcd was replaced or restored, reading all keys again", "etcd", e.name)
			}
		default:
			retry = min(max(2*retry, monitorRetryMin), monitorRetryMax)
			if e.health.failed(err, time.Now().Add(retry)) {
				e.login.suspect()
				e.log.Warn("etcd does not answer", "etcd", e.name, "err", reasonOf(err))
			}
			conn.ResetConnectBackoff()
		}
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// probe makes a linearizable read without waiting for a connection. header is nil when
// the server answered by denying access to the key.
func (e *Etcd) probe(ctx context.Context) (*pb.ResponseHeader, error) {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	resp, err := e.reads.Range(ctx, &pb.RangeRequest{Key: []byte(probeKey), CountOnly: true})
	if err == nil {
		return resp.Header, nil
	}
	err = rpctypes.Error(err)
	if code := codeOf(err); code == codes.PermissionDenied || errors.Is(err, rpctypes.ErrUserEmpty) {
		return nil, nil
	}
	return nil, err
}

// WhileAnswering implements [Store].
func (e *Etcd) WhileAnswering(ctx context.Context) (context.Context, context.CancelFunc) {
	return e.health.whileAnswering(ctx)
}

// Ping implements [Store].
func (e *Etcd) Ping(ctx context.Context) (rtt time.Duration, err error) {
	err = e.do(ctx, "ping", "", func(ctx context.Context) error {
		start := time.Now()
		_, err := e.probe(ctx)
		rtt = time.Since(start)
		return err
	})
	return rtt, err
}
