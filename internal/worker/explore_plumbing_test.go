package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/nixl"
)

// dice are thrown by many goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed, stream uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, stream))} }

func (d *dice) throw(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// oneOf is true once in n times, and never when the exploration is over.
func (x *exploration) oneOf(n int) bool { return x.throw(n) == 0 && !x.calm.Load() }

// delay is how late something comes: mostly not at all, seldom very.
func (x *exploration) delay() time.Duration {
	switch {
	case x.oneOf(40):
		return time.Duration(x.throw(120)) * time.Millisecond
	case x.oneOf(3):
		return time.Duration(x.throw(6000)) * time.Microsecond
	}
	return 0
}

// writes are the bytes that were to be written, by ticket and address.
type writes struct {
	mu    sync.Mutex
	bytes map[writeKey][]byte
}

type writeKey struct {
	ticket nixl.TicketID
	at     nixl.Desc
}

func (ws *writes) keep(j *nixl.Job) {
	if j.Op != nixl.Write || j.Bytes == selfTestBytes {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.bytes == nil {
		ws.bytes = map[writeKey][]byte{}
	}
	for i, d := range j.Remote {
		ws.bytes[writeKey{j.Ticket, d}] = slices.Clone(j.Local[i])
	}
}

func (ws *writes) of(ticket nixl.TicketID, d nixl.Desc) []byte {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.bytes[writeKey{ticket, d}]
}

// unruly is a transport whose transfers and messages come late, are lost or come twice,
// and whose accesses last longer than their initiators live.
type unruly struct {
	nixl.Transport
	x *exploration
}

// Deregistered implements nixl.RegionObserver for transports that are one.
func (u *unruly) Deregistered(base nixl.Desc) {
	if o, ok := u.Transport.(nixl.RegionObserver); ok {
		o.Deregistered(base)
	}
}

func (u *unruly) Start(h nixl.Host) ([]byte, error) { return u.Transport.Start(unrulyHost{h, u.x}) }

func (u *unruly) Submit(r nixl.Remote, j *nixl.Job) {
	u.x.written.keep(j)
	late := u.x.delay()
	if late == 0 {
		u.Transport.Submit(r, j)
		return
	}
	canceled := make(chan error, 1)
	j.OnCancel(func(cause error) { canceled <- cause })
	u.x.late.Go(func() {
		wait := time.NewTimer(late)
		defer wait.Stop()
		select {
		case <-wait.C:
			u.Transport.Submit(r, j)
		case cause := <-canceled:
			j.Finish(cause)
		}
	})
}

func (u *unruly) Notify(ctx context.Context, r nixl.Remote, msg []byte) error {
	wait := time.NewTimer(u.x.delay())
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if u.x.oneOf(40) {
		u.x.add("lost notices")
		return fmt.Errorf("notice lost on purpose: %w", nixl.ErrRemoteDisconnect)
	}
	err := u.Transport.Notify(ctx, r, msg)
	if err == nil && u.x.oneOf(8) {
		u.x.add("doubled notices")
		_ = u.Transport.Notify(ctx, r, msg) // the first one counts
	}
	return err
}

// unrulyHost lets some accesses last longer than the transport needs, as those of a
// process that was stopped do: they write what they were to write at any later time.
type unrulyHost struct {
	nixl.Host
	x *exploration
}

func (h unrulyHost) Acquire(op nixl.Op, ticket nixl.TicketID, descs []nixl.Desc) (*nixl.Grant, error) {
	g, err := h.Host.Acquire(op, ticket, descs)
	if err != nil || !h.x.oneOf(10) {
		return g, err
	}
	slow, err := h.Host.Acquire(op, ticket, descs)
	if err != nil {
		return g, nil // revoked meanwhile
	}
	late := time.Duration(h.x.throw(60)) * time.Millisecond
	h.x.late.Go(func() {
		defer slow.Release(0)
		wait := time.NewTimer(late)
		defer wait.Stop()
		<-wait.C
		if op != nixl.Write {
			return
		}
		for i, d := range descs {
			copy(slow.Segments()[i], h.x.written.of(ticket, d))
		}
		if slow.Stopped() {
			h.x.add("writes after a revocation began")
		}
	})
	return g, nil
}

// unrulyQueue is a queue that delivers messages twice and is out of reach at times, also
// when it has taken a message.
type unrulyQueue struct {
	events.WorkQueue
	x *exploration
}

func (q *unrulyQueue) Enqueue(ctx context.Context, id string, body []byte) error {
	if q.x.oneOf(12) {
		return events.ErrUnavailable
	}
	err := q.WorkQueue.Enqueue(ctx, id, body)
	if err == nil && q.x.oneOf(4) {
		q.x.add("doubled messages")
		_ = q.WorkQueue.Enqueue(ctx, id+"/again", body) // the first one counts
	}
	if err == nil && q.x.oneOf(12) {
		return events.ErrUnavailable
	}
	return err
}

// watched is the hash backend, and sees to it that what a step touches belongs to its
// sequence alone.
type watched struct {
	*mock.Backend
	w *Worker
	x *exploration
}

func (b *watched) Step(ctx context.Context, batch []engine.BatchSeq) error {
	b.look(batch)
	err := b.Backend.Step(ctx, batch)
	b.look(batch)
	return err
}

func (b *watched) look(batch []engine.BatchSeq) {
	c := b.w.builtin()
	if c == nil {
		return // the warm-up
	}
	plane := c.kv
	bs := plane.BlockSize()
	writer := map[int32]int{}
	for i, s := range batch {
		table := s.Blocks[:(s.Start+len(s.Tokens)+bs-1)/bs]
		if plane.Agent().Exposed(nixl.Write, plane.Descs(table)) {
			b.x.blame("%s: a step uses blocks %v while a peer may write into one of them", b.w.Name(), table)
		}
		fresh := table[s.Start/bs:]
		if plane.Agent().Exposed(nixl.Read, plane.Descs(fresh)) {
			b.x.blame("%s: a step writes into blocks %v while a peer may read one of them", b.w.Name(), fresh)
		}
		for _, id := range fresh {
			writer[id] = i
		}
	}
	for i, s := range batch {
		for _, id := range s.Blocks {
			if at, ok := writer[id]; ok && at != i && !slices.Equal(batch[at].Blocks, s.Blocks) {
				b.x.blame("%s: block %d belongs to two sequences of a step, %v and %v", b.w.Name(), id, batch[at].Blocks, s.Blocks)
			}
		}
	}
}
