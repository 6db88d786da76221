package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/events"
)

// populated counts the pieces of a worker's KV pool that were made resident.
type populated struct{ pieces atomic.Int64 }

// of has the memory of a worker counted. It needs no help of the system.
func (p *populated) of(c *Config) {
	load := c.Load
	c.Load = func(ctx context.Context, progress func(float64)) (*Loaded, error) {
		l, err := load(ctx, progress)
		if err == nil {
			l.Backend = &populatedBackend{l.Backend, p}
		}
		return l, err
	}
}

type populatedBackend struct {
	engine.Backend
	p *populated
}

func (b *populatedBackend) AllocKV(n int) (engine.KVPool, error) {
	pool, err := b.Backend.AllocKV(n)
	counted := make(engine.KVPool, len(pool))
	for i, m := range pool {
		counted[i] = populatedMemory{m, b.p}
	}
	return counted, err
}

type populatedMemory struct {
	engine.KVMemory
	p *populated
}

func (m populatedMemory) Populate(int, int) error {
	m.p.pieces.Add(1)
	return nil
}

// The blocks of a remote prefill are prepared while it is computed.
func TestRemotePrefillFindsBlocksResident(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	prepared := make(chan struct{})
	var there, here populated
	var computing atomic.Bool
	w.opts.StepTime = func(int, int) time.Duration {
		if computing.Load() {
			<-prepared
		}
		return 0
	}
	w.start("worker-1", cluster.RolePrefill, there.of)
	d := w.start("worker-2", cluster.RoleDecode, here.of)
	eventually(t, "the prefill worker is found", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
	p, done := prompt(r, 3*blockSize), make(chan result, 1)
	computing.Store(true)
	go func() { done <- w.generate(t.Context(), "", request("r", p, 4)) }()
	eventually(t, "all blocks are prepared where they are written, and the partly filled one where it is read", func() bool {
		return here.pieces.Load() == 3 && there.pieces.Load() == 1
	})
	close(prepared)
	check(t, <-done, p, 4)
	if st := d.Status().Stats; st.RemotePrefillTotal != 1 {
		t.Errorf("%d remote prefills", st.RemotePrefillTotal)
	}
}

// slowRemoval is a queue that takes a message out when it is told to go on.
type slowRemoval struct {
	events.WorkQueue
	goOn chan struct{}
}

func (q slowRemoval) Remove(ctx context.Context, id string) error {
	<-q.goOn
	return q.WorkQueue.Remove(ctx, id)
}

// A sequence whose KV is in place goes on, whatever the queue still has to be told.
func TestSequenceDoesNotWaitForTheQueue(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	w.start("worker-1", cluster.RolePrefill)
	goOn := make(chan struct{})
	d := w.start("worker-2", cluster.RoleDecode, func(c *Config) { c.Queue = slowRemoval{c.Queue, goOn} })
	defer close(goOn)
	eventually(t, "the prefill worker is found", func() bool { return len(d.sees(cluster.RolePrefill)) == 1 })
	p := prompt(r, 3*blockSize)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check(t, w.generate(ctx, "", request("r", p, 4)), p, 4)
	if st := d.Status().Stats; st.RemotePrefillTotal != 1 {
		t.Errorf("%d remote prefills", st.RemotePrefillTotal)
	}
}
