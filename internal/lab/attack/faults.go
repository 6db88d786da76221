package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// faults lists faults of processes and stores, and orders of the operator.
func faults() []attack {
	return []attack{
		{name: "impossible orders", what: "orders that no node can carry out", run: impossibleOrders, after: func(ctx context.Context, c *target) error {
			_, err := c.dynctl(ctx, "up", "--prefill", "1", "--decode", "2")
			return err
		}},
		{name: "drain and resume", what: "a decode worker is drained and taken back, again and again", run: func(ctx context.Context, c *target, seen *tally) error {
			names, err := c.workers(ctx, "decode")
			if err != nil {
				return err
			}
			for i := 0; ctx.Err() == nil && i < 20; i++ {
				w := names[i%len(names)]
				for _, verb := range []string{"drain", "resume"} {
					if out, err := c.dynctl(context.WithoutCancel(ctx), verb, w); err != nil {
						return fmt.Errorf("%s %s: %w: %s", verb, w, err, out)
					}
					seen.add(verb)
				}
			}
			return nil
		}},
		{name: "kill -9 of a decode node", what: "a node with a decode worker is killed and started again", run: killNode(1)},
		{name: "kill -9 of the prefill node's peer", what: "the other decode node is killed and started again", run: killNode(2)},
		{name: "kill -9 of etcd", what: "etcd is killed and comes back after three seconds", run: killStore(func(c *target) *program { return c.etcd }, false)},
		{name: "etcd forgets", what: "etcd is killed and comes back without its data", run: killStore(func(c *target) *program { return c.etcd }, true)},
		{name: "kill -9 of NATS", what: "NATS is killed and comes back after three seconds", run: killStore(func(c *target) *program { return c.nats }, false)},
		{name: "NATS forgets", what: "NATS is killed and comes back without its data", run: killStore(func(c *target) *program { return c.nats }, true)},
	}
}

// impossibleOrders gives orders that must be refused.
func impossibleOrders(ctx context.Context, c *target, seen *tally) error {
	var errs []error
	for _, args := range [][]string{
		{"up", "--prefill", "1", "--decode", "2", "--kv-blocks", "1000000000"},
		{"up", "--prefill", "1", "--decode", "2", "--model", "/nonexistent"},
		{"up", "--prefill", "1", "--decode", "2", "--device", "cpu:9"},
		{"up", "--prefill", "1", "--decode", "2", "--device", "gpu:0"},
		{"up", "--prefill", "100000", "--decode", "2"},
	} {
		order, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		_, err := c.dynctl(order, append(args, "--timeout", "20s")...)
		cancel()
		if err == nil {
			errs = append(errs, fmt.Errorf("dynctl %v was carried out", args))
			seen.gotIn()
			continue
		}
		seen.add("refused")
	}
	return errors.Join(errs...)
}

// killNode kills a node again and again; it is started again after two seconds.
func killNode(i int) func(context.Context, *target, *tally) error {
	return func(ctx context.Context, c *target, seen *tally) error {
		for ctx.Err() == nil {
			c.nodes[i].end(syscall.SIGKILL)
			seen.add("killed")
			pause(context.WithoutCancel(ctx), 2*time.Second)
			if err := c.nodes[i].launch(); err != nil {
				return err
			}
			pause(ctx, 8*time.Second)
		}
		return nil
	}
}

// killStore kills a store once, which comes back after three seconds.
func killStore(of func(*target) *program, forget bool) func(context.Context, *target, *tally) error {
	return func(ctx context.Context, c *target, seen *tally) error {
		p := of(c)
		p.end(syscall.SIGKILL)
		seen.add("killed")
		pause(context.WithoutCancel(ctx), 3*time.Second)
		if forget {
			if err := os.RemoveAll(filepath.Join(c.dir, p.name)); err != nil {
				return err
			}
			seen.add("data removed")
		}
		if err := p.launch(); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
}
