package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
)

// ErrNoInstance is returned when no instance of an endpoint is registered, or none with
// the demanded id.
var ErrNoInstance = runtime.ErrNoInstance

// ErrUnspoken is returned for an instance that is registered with a transport that is none
// of ours.
var ErrUnspoken = errors.New("cannot be called")

// CompareInstances orders instances by endpoint, then by worker, then by id.
func CompareInstances(a, b cluster.Instance) int {
	return cmp.Or(
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Endpoint, b.Endpoint),
		cluster.CompareNames(a.Worker, b.Worker), cmp.Compare(a.InstanceID, b.InstanceID),
	)
}

// Call sends a request to an endpoint, of any namespace, and calls each with the items of
// the answer in order. If id is not 0, the request goes to that instance, else to a random
// one. Body and items are what JSON decodes to, with integers as such. When each fails or
// ctx ends, the worker is told to stop.
//
// Errors: ErrNoInstance; ErrUnspoken, if no instance has a transport of ours; ErrUnreachable, if no instance can be reached; the cause of ctx,
// also when the worker noticed first that its deadline passed; else what the worker says.
func (c *Cluster) Call(ctx context.Context, e cluster.Endpoint, id cluster.InstanceID, body any, each func(item any) error) error {
	cfg := runtime.Config{Store: c.store, Client: c.plane, Namespace: e.Namespace, Log: c.log}
	found, err := runtime.NewClient(ctx, cfg, e.Component, e.Name)
	if err != nil {
		return err
	}
	defer found.Close()
	stream, err := c.call(ctx, found, id, body)
	if errors.Is(err, ErrNoInstance) {
		stream, err = c.callForeign(ctx, e, id, body, err)
	}
	if err != nil {
		return callError(err)
	}
	defer stream.Close()
	for {
		var item any
		switch err := stream.Recv(ctx, &item); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return callError(err)
		}
		if err := each(item); err != nil {
			return err
		}
	}
}

func (c *Cluster) call(ctx context.Context, found *runtime.Client, id cluster.InstanceID, body any) (requestplane.Stream, error) {
	if id == 0 && len(found.Instances()) == 0 {
		return nil, ErrNoInstance // whose endpoint the caller names
	}
	b, err := found.Balance(runtime.Random)
	switch {
	case err != nil:
		return nil, err
	case id != 0:
		return b.Direct(ctx, id, requestID("call"), nil, body)
	}
	return b.Call(ctx, requestID("call"), nil, body)
}

// callForeign calls an instance that is registered in the layout of another release, or
// returns none if there is no such instance either.
func (c *Cluster) callForeign(ctx context.Context, e cluster.Endpoint, id cluster.InstanceID, body any, none error) (requestplane.Stream, error) {
	v, err := c.ViewOf(ctx, e)
	if err != nil {
		return nil, err
	}
	unspoken := none
	for _, inst := range slices.SortedFunc(slices.Values(v.Instances), CompareInstances) {
		switch why := inst.Transport.Unspoken(); {
		case id != 0 && id != inst.InstanceID:
		case why != "":
			unspoken = fmt.Errorf("%w: instance %s: %s", ErrUnspoken, inst.InstanceID, why)
		case inst.Transport.Address() != "":
			return c.plane.Call(ctx, inst.Transport.Address(), requestID("call"), nil, body)
		}
	}
	return nil, unspoken
}

// callError gives an error of the request plane the meaning that [Cluster.Call] promises.
func callError(err error) error {
	switch {
	case errors.Is(err, requestplane.ErrCannotConnect):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	case errors.Is(err, requestplane.ErrTimeout):
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// requestID returns a new id for a request, which begins with what it is for.
func requestID(what string) string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return what + "-" + hex.EncodeToString(id[:])
}
