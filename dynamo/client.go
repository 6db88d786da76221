package dynamo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// Strategy says which instance a call goes to.
type Strategy string

// The strategies. Loads are the calls of the client itself that have not ended.
const (
	Random      Strategy = Strategy(runtime.Random)
	RoundRobin  Strategy = Strategy(runtime.RoundRobin)
	PowerOfTwo  Strategy = Strategy(runtime.PowerOfTwo) // the less loaded of two random instances
	LeastLoaded Strategy = Strategy(runtime.LeastLoaded)
)

// Instance is one instance of an endpoint.
type Instance struct {
	ID       uint64 // exceeds 2^53: keep it an integer in JSON
	Endpoint string // dyn://namespace.component.endpoint
	Name     string // of the worker or program; may be empty
	Address  string // on the request plane: host:port/PATH, or a URL over HTTP
}

// Client follows the instances of an endpoint and calls them. While the store cannot be
// reached, it keeps the last known ones.
type Client struct {
	b *runtime.Balancer
}

// Client returns a client of the endpoint, until ctx ends or the client is closed. It
// returns once the current instances are known, of which there may be none; see
// [Client.Wait].
func (e *Endpoint) Client(ctx context.Context, s Strategy) (*Client, error) {
	c, err := e.e.Client(ctx)
	if err != nil {
		return nil, err
	}
	b, err := c.Balance(runtime.Strategy(s))
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Client{b}, nil
}

// Wait waits until at least n instances can be called.
func (c *Client) Wait(ctx context.Context, n int) error { return c.b.Client().Wait(ctx, n) }

// Instances returns the instances that calls go to, sorted by id.
func (c *Client) Instances() []Instance {
	var out []Instance
	for _, i := range c.b.Client().Instances() {
		out = append(out, Instance{ID: uint64(i.InstanceID), Endpoint: i.Of().String(), Name: i.Worker, Address: i.Transport.Address()})
	}
	return out
}

// Changed receives after the instances changed; several changes may come as one. It serves
// one reader.
func (c *Client) Changed() <-chan struct{} { return c.b.Client().Changed() }

// Close stops following. Calls that run continue.
func (c *Client) Close() { c.b.Client().Close() }

// CallOption changes one call.
type CallOption func(*call)

type call struct {
	to      uint64
	id      string
	headers map[string]string
	stop    <-chan struct{}
}

// To sends the request to one instance and to no other.
func To(instance uint64) CallOption { return func(c *call) { c.to = instance } }

// WithRequestID is the id of the request in logs, in place of a random one.
func WithRequestID(id string) CallOption { return func(c *call) { c.id = id } }

// WithHeader sends a header.
func WithHeader(name, value string) CallOption {
	return func(c *call) {
		if c.headers == nil {
			c.headers = map[string]string{}
		}
		c.headers[name] = value
	}
}

// StopOn asks the handler to end with what it has once the channel is closed. The answer goes
// on until the handler returns, which it does late if it does not look at [Stopped].
func StopOn(stop <-chan struct{}) CallOption { return func(c *call) { c.stop = stop } }

// stopping stops the stream when asked to, until release is called.
func (c *call) stopping(stream requestplane.Stream) (release func()) {
	if c.stop == nil {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.stop:
			stream.Stop()
		case <-ended:
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// Call sends a request and returns the items of the answer, decoded as A, as they arrive.
// An error is the last element. A request that provably reached no handler is sent to
// another instance; nothing else is repeated. When the loop ends early, the handler's
// context ends; [StopOn] lets the handler end in its own time.
//
// Errors: ErrNoInstance, an [Error] of the handler, the cause of ctx, or that the answer
// broke off.
func Call[A any](ctx context.Context, c *Client, body any, opts ...CallOption) iter.Seq2[A, error] {
	return func(yield func(A, error) bool) {
		var none A
		o := call{id: fmt.Sprintf("sdk-%s", rand.Text())}
		for _, f := range opts {
			f(&o)
		}
		stream, err := c.begin(ctx, body, o)
		if err != nil {
			yield(none, received(err))
			return
		}
		defer stream.Close()
		defer o.stopping(stream)()
		for {
			var a A
			switch err := stream.Recv(ctx, &a); {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(none, received(err))
				return
			}
			if !yield(a, nil) {
				return
			}
		}
	}
}

// Ask sends a request and returns the first item of the answer. An answer without an item
// is an error.
func Ask[A any](ctx context.Context, c *Client, body any, opts ...CallOption) (A, error) {
	for a, err := range Call[A](ctx, c, body, opts...) {
		return a, err
	}
	var none A
	return none, errors.New("the answer is empty")
}

func (c *Client) begin(ctx context.Context, body any, o call) (requestplane.Stream, error) {
	if o.to != 0 {
		return c.b.Direct(ctx, cluster.InstanceID(o.to), o.id, o.headers, body)
	}
	return c.b.Call(ctx, o.id, o.headers, body)
}
