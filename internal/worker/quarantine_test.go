package worker

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
)

// standstill makes a peer stand still in the middle of an access: the memory that it has
// been let at stays in its hands, whatever becomes of the ticket.
type standstill struct {
	mu    sync.Mutex
	armed bool
	op    nixl.Op
	grant *nixl.Grant // what it has its hands on
}

// next has the next access of a direction stand still.
func (s *standstill) next(op nixl.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.op = true, op
}

// memory is what the peer may still touch, nil before it has begun.
func (s *standstill) memory() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grant == nil {
		return nil
	}
	return s.grant.Segments()
}

// end lets the peer go on, which then touches nothing any more.
func (s *standstill) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if s.grant != nil {
		s.grant.Release(0)
		s.grant = nil
	}
}

// at changes a worker whose peers stand still.
func (s *standstill) at(c *Config) {
	fresh := c.NIXL
	c.NIXL = func() nixl.Config {
		n := fresh()
		for i, t := range n.Transports {
			n.Transports[i] = standing{t, s}
		}
		return n
	}
}

type standing struct {
	nixl.Transport
	s *standstill
}

func (t standing) Start(h nixl.Host) ([]byte, error) { return t.Transport.Start(standingHost{h, t.s}) }

type standingHost struct {
	nixl.Host
	s *standstill
}

func (h standingHost) Acquire(op nixl.Op, ticket nixl.TicketID, descs []nixl.Desc) (*nixl.Grant, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.s.armed && op == h.s.op {
		if g, err := h.Host.Acquire(op, ticket, descs); err == nil {
			h.s.armed, h.s.grant = false, g
		}
	}
	return h.Host.Acquire(op, ticket, descs)
}

// impatient has workers believe soon that a peer stands still.
func impatient(w *world) { w.tune = func(k *Worker) { k.proof = 20 * time.Millisecond } }

// Blocks whose writer stands still are used by nobody until it is known to write no more;
// the request is prefilled into others, and what is written late is never decoded.
func TestQuarantine(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	impatient(w)
	s := &standstill{}
	defer s.end()
	pre, d := w.start("worker-1", cluster.RolePrefill), w.start("worker-2", cluster.RoleDecode, s.at)
	met(t, pre, d)

	s.next(nixl.Write)
	p := prompt(r, 100)
	got := w.generate(t.Context(), "worker-2", request("a", p, 20))
	check(t, got, p, 20)
	if got.timing == nil || got.timing.Prefill != "local" {
		t.Errorf("prefilled by %+v, though its writer stands still", got.timing)
	}
	d.counts(t, 1, "dynamo_component_kv_quarantines_total")
	blocks := d.engine.Load().Stats().Quarantined
	if want := (len(p) + blockSize - 1) / blockSize; blocks != want {
		t.Errorf("%d blocks in quarantine, want %d", blocks, want)
	}
	if s.memory() == nil {
		t.Fatal("nobody stands still")
	}

	// Others are prefilled remotely meanwhile, and the writer goes on writing.
	for i, id := range []string{"b", "c", "d"} {
		for _, piece := range s.memory() {
			for k := range piece {
				piece[k] = byte(i*31 + k)
			}
		}
		p := prompt(r, 120)
		got := w.generate(t.Context(), "worker-2", request(id, p, 20))
		check(t, got, p, 20)
		if got.timing == nil || got.timing.Prefill != "worker-1" {
			t.Errorf("request %s was prefilled by %+v", id, got.timing)
		}
		if now := d.engine.Load().Stats().Quarantined; now != blocks {
			t.Errorf("%d blocks in quarantine after request %s, want %d", now, id, blocks)
		}
	}
	s.end()
	eventually(t, "the quarantine is lifted", func() bool { return d.engine.Load().Stats().Quarantined == 0 })
	idle(t, pre, d)
	check(t, w.generate(t.Context(), "worker-2", request("again", p, 20)), p, 20)
}

// Held KV whose reader stands still is kept, and nothing else is computed in its place.
func TestHoldIsKept(t *testing.T) {
	r := seeded(t)
	w := newWorld(t)
	impatient(w)
	s := &standstill{}
	defer s.end()
	pre, d := w.start("worker-1", cluster.RolePrefill, s.at), w.start("worker-2", cluster.RoleDecode)
	met(t, pre, d)
	h := w.hops()
	p := prompt(r, 100)
	req, _ := h.hold("worker-1", request("warm", p, 2), 20*time.Second)
	check(t, w.generate(t.Context(), "worker-2", req), p, 2) // and the path is proven

	s.next(nixl.Read)
	p = prompt(r, 100)
	req, stream := h.hold("worker-1", request("a", p, 20), 20*time.Second)
	got := w.generate(t.Context(), "worker-2", req)
	check(t, got, p, 20)
	if got.timing == nil || got.timing.Prefill != "worker-1" {
		t.Errorf("prefilled by %+v", got.timing)
	}
	pre.counts(t, 2, "dynamo_component_kv_holds_total", `outcome="read"`)
	stream.Close() // the frontend has let go, too
	held := pre.engine.Load().Stats().KVOutgoing
	if held == 0 || s.memory() == nil {
		t.Fatalf("%d blocks are kept for a reader that stands still", held)
	}
	var before [][]byte
	for _, piece := range s.memory() {
		before = append(before, slices.Clone(piece))
	}

	// More prompts than the pool has room for beside what is kept.
	for i := range 40 {
		req, next := h.hold("worker-1", request("next", prompt(r, 120), 2), 20*time.Second)
		check(t, w.generate(t.Context(), "worker-2", req), req.TokenIDs, 2)
		next.Close()
		if now := pre.engine.Load().Stats().KVOutgoing; now < held {
			t.Fatalf("%d blocks are kept after prompt %d, want %d", now, i, held)
		}
	}
	for i, piece := range s.memory() {
		if !slices.Equal(piece, before[i]) {
			t.Error("what a reader may still read was written to")
			break
		}
	}
	s.end()
	idle(t, pre, d)
}

// hosted is a transport that shows its host.
type hosted struct {
	nixl.Transport
	host *nixl.Host
}

func (h hosted) Start(host nixl.Host) ([]byte, error) {
	*h.host = host
	return h.Transport.Start(host)
}

// A quarantine is lifted when the writer is known to have stopped, as long as that takes;
// when the worker ends first, never.
func TestLiftWhenSafe(t *testing.T) {
	w := newWorld(t)
	impatient(w)
	var host nixl.Host
	d := w.start("worker-1", cluster.RoleDecode, func(c *Config) {
		fresh := c.NIXL
		c.NIXL = func() nixl.Config {
			n := fresh()
			n.Transports[0] = hosted{n.Transports[0], &host}
			return n
		}
	})
	descs := d.pool.descs([]int32{1})
	write := func() (nixl.TicketID, *nixl.Grant) {
		id, err := d.nixl.OpenTicket(nixl.TicketSpec{Access: nixl.Write, Descs: descs})
		if err != nil {
			t.Fatal(err)
		}
		g, err := host.Acquire(nixl.Write, id, descs)
		if err != nil {
			t.Fatal(err)
		}
		return id, g
	}
	lift := func(id nixl.TicketID) (lifted chan struct{}, over chan struct{}) {
		lifted, over = make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			d.liftWhenSafe("a", id, func() { close(lifted) })
		}()
		return lifted, over
	}
	const soon = 5 * time.Second

	id, g := write()
	lifted, over := lift(id)
	select {
	case <-lifted:
		t.Error("lifted during an access")
	case <-over:
		t.Error("given up during an access, though the worker goes on")
	case <-time.After(5 * d.proof):
	}
	g.Release(0)
	select {
	case <-lifted:
	case <-time.After(soon):
		t.Error("not lifted after the access")
	}

	id, g = write()
	lifted, over = lift(id)
	stopped := make(chan error, 1)
	go func() { stopped <- d.stop(errKilled) }()
	select {
	case <-lifted:
		t.Error("lifted during an access when the worker stopped")
	case <-over:
	case <-time.After(soon):
		t.Error("goes on though the worker stops")
	}
	g.Release(0)
	<-stopped
}
