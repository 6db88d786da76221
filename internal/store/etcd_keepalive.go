package store

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/dynctl/dynctl/internal/cluster"
)

// keepAlives renews all leases of a store on one stream. A stream for each renewal would
// be simpler. With a user name, however, etcd checks the password for every new stream,
// which is slow by design.
//
// The client library's own keep-alive retries without a pause while etcd has no leader.
// This one leaves retries and their pace to the keepers.
type keepAlives struct {
	client pb.LeaseClient
	life   *lifetime
	open   chan struct{} // capacity 1: held while opening or sending

	mu      sync.Mutex
	stream  *leaseStream // nil when there is none
	waiting map[cluster.InstanceID][]chan<- renewal
}

type leaseStream struct {
	pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

type renewal struct {
	ttl time.Duration
	err error
}

func newKeepAlives(client pb.LeaseClient, life *lifetime) *keepAlives {
	return &keepAlives{
		client:  client,
		life:    life,
		open:    make(chan struct{}, 1),
		waiting: map[cluster.InstanceID][]chan<- renewal{},
	}
}

// renew sends one keep-alive and waits for its answer.
func (k *keepAlives) renew(ctx context.Context, id cluster.InstanceID) (time.Duration, error) {
	answer := make(chan renewal, 1)
	k.wait(id, answer)
	defer k.forget(id, answer)
	if err := k.send(ctx, id); err != nil {
		return 0, err
	}
	select {
	case r := <-answer:
		return r.ttl, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (k *keepAlives) wait(id cluster.InstanceID, answer chan<- renewal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting[id] = append(k.waiting[id], answer)
}

func (k *keepAlives) forget(id cluster.InstanceID, answer chan<- renewal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rest := slices.DeleteFunc(k.waiting[id], func(c chan<- renewal) bool { return c == answer })
	if len(rest) == 0 {
		delete(k.waiting, id)
		return
	}
	k.waiting[id] = rest
}

// send writes to the stream, opening it first if necessary. Only one goroutine at a time
// does so.
func (k *keepAlives) send(ctx context.Context, id cluster.InstanceID) error {
	select {
	case k.open <- struct{}{}:
		defer func() { <-k.open }()
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	stream := k.stream
	k.mu.Unlock()
	if stream == nil {
		var err error
		if stream, err = k.connect(ctx); err != nil {
			return err
		}
	}
	// If the stream is broken already, receive finds the reason.
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// connect opens the stream, which lives until it breaks or the store closes.
func (k *keepAlives) connect(ctx context.Context) (*leaseStream, error) {
	finished, err := k.life.begin()
	if err != nil {
		return nil, err
	}
	sctx, cancel := context.WithCancel(k.life.ctx)
	unlink := context.AfterFunc(ctx, cancel) // while opening, the caller's context counts
	client, err := k.client.LeaseKeepAlive(sctx)
	if !unlink() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		finished()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	stream := &leaseStream{client, cancel}
	k.mu.Lock()
	k.stream = stream
	k.mu.Unlock()
	go func() {
		defer finished()
		k.receive(stream)
	}()
	return stream, nil
}

// receive hands each answer to the renewal that waits for it. When the stream breaks, it
// hands the error to all of them.
func (k *keepAlives) receive(stream *leaseStream) {
	defer stream.cancel()
	for {
		resp, err := stream.Recv()
		k.mu.Lock()
		if err != nil {
			k.stream = nil
			for _, answers := range k.waiting {
				deliver(answers, renewal{err: rpctypes.Error(err)})
			}
			k.mu.Unlock()
			return
		}
		r := renewal{ttl: seconds(resp.TTL)}
		if resp.TTL <= 0 {
			r.err = rpctypes.ErrLeaseNotFound
		}
		deliver(k.waiting[cluster.InstanceID(resp.ID)], r)
		k.mu.Unlock()
	}
}

// deliver sends r to every waiting renewal.
func deliver(answers []chan<- renewal, r renewal) {
	for _, answer := range answers {
		select {
		case answer <- r:
		default:
		}
	}
}
