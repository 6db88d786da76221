package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// ErrNoInstance is returned by calls when no instance is routable, or none with the
// demanded id.
var ErrNoInstance = errors.New("no instance")

// Balancer distributes calls over the instances of a [Client]. A call that provably
// reached no handler goes to another instance; every other failure is the caller's. It
// may be used by several goroutines at once, and needs no Close.
type Balancer struct {
	client   *Client
	strategy Strategy

	mu    sync.Mutex
	turn  uint64
	loads map[cluster.InstanceID]int // calls that have not ended
}

// Balance returns a balancer over the client's instances.
func (c *Client) Balance(s Strategy) (*Balancer, error) {
	if _, err := ParseStrategy(string(s)); err != nil {
		return nil, err
	}
	return &Balancer{client: c, strategy: s, loads: map[cluster.InstanceID]int{}}, nil
}

// Client returns the client whose instances are called.
func (b *Balancer) Client() *Client { return b.client }

// InFlight returns the number of calls to an instance that have not ended.
func (b *Balancer) InFlight(id cluster.InstanceID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loads[id]
}

// Call sends a request to an instance that the strategy chooses. The first Recv may still
// send it to another one, if the chosen instance refuses it before a handler runs. The
// other arguments are those of [Client.Call]. It fails with ErrNoInstance when no
// instance is left to try.
func (b *Balancer) Call(ctx context.Context, id string, headers map[string]string, body any) (requestplane.Stream, error) {
	s := &balancedStream{b: b, ctx: ctx, id: id, headers: headers, body: body}
	if err := s.next(nil); err != nil {
		return nil, err
	}
	return s, nil
}

// Direct sends a request to one instance and to no other.
func (b *Balancer) Direct(ctx context.Context, to cluster.InstanceID, id string, headers map[string]string, body any) (requestplane.Stream, error) {
	all := b.client.All()
	i := slices.IndexFunc(all, func(i cluster.Instance) bool { return i.InstanceID == to })
	if i < 0 {
		return nil, fmt.Errorf("call %s: %w %s", b.client.subject, ErrNoInstance, to)
	}
	s := &balancedStream{b: b, only: true, ctx: ctx}
	b.begin(to)
	inner, err := b.client.Call(ctx, all[i], id, headers, body)
	if err != nil {
		b.end(to)
		return nil, err
	}
	s.at, s.inner = to, inner
	return s, nil
}

// choose returns an instance that was not tried, and counts the call that will go there.
func (b *Balancer) choose(tried map[cluster.InstanceID]bool) (cluster.Instance, bool) {
	left := b.client.Instances()
	if len(tried) > 0 {
		left = slices.DeleteFunc(slices.Clone(left), func(i cluster.Instance) bool { return tried[i.InstanceID] })
	}
	if len(left) == 0 {
		return cluster.Instance{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	inst := left[b.strategy.pick(left, choice{turn: b.turn, load: func(id cluster.InstanceID) int { return b.loads[id] }})]
	b.turn++
	b.loads[inst.InstanceID]++
	return inst, true
}

func (b *Balancer) begin(id cluster.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loads[id]++
}

func (b *Balancer) end(id cluster.InstanceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loads[id]--; b.loads[id] == 0 {
		delete(b.loads, id)
	}
}
