package worker

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/patience"
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
func impatient(w *world) { w.tune = func(k *Worker) { k.waits.proof = 20 * time.Millisecond } }

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
	blocks := d.engine().Stats().Quarantined
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
		if now := d.engine().Stats().Quarantined; now != blocks {
			t.Errorf("%d blocks in quarantine after request %s, want %d", now, id, blocks)
		}
	}
	s.end()
	eventually(t, "the quarantine is lifted", func() bool { return d.engine().Stats().Quarantined == 0 })
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
	req, _ := h.hold("worker-1", request("warm", p, 2), patience.Soon)
	check(t, w.generate(t.Context(), "worker-2", req), p, 2) // and the path is proven

	s.next(nixl.Read)
	p = prompt(r, 100)
	req, stream := h.hold("worker-1", request("a", p, 20), patience.Soon)
	got := w.generate(t.Context(), "worker-2", req)
	check(t, got, p, 20)
	if got.timing == nil || got.timing.Prefill != "worker-1" {
		t.Errorf("prefilled by %+v", got.timing)
	}
	pre.counts(t, 2, "dynamo_component_kv_holds_total", `outcome="read"`)
	stream.Close() // the frontend has let go, too
	// What the first reader had is given back a moment after it is counted.
	held := (len(p) + blockSize - 1) / blockSize
	eventually(t, "only what the reader needs that stands still is kept", func() bool { return pre.engine().Stats().KVOutgoing == held })
	if s.memory() == nil {
		t.Fatal("no reader stands still")
	}
	var before [][]byte
	for _, piece := range s.memory() {
		before = append(before, slices.Clone(piece))
	}

	// More prompts than the pool has room for beside what is kept.
	for i := range 40 {
		req, next := h.hold("worker-1", request("next", prompt(r, 120), 2), patience.Soon)
		check(t, w.generate(t.Context(), "worker-2", req), req.TokenIDs, 2)
		next.Close()
		if now := pre.engine().Stats().KVOutgoing; now < held {
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
