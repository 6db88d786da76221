package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
	"github.com/dynctl/dynctl/internal/sharedmem"
)

// pair is two agents that reach each other over one transport.
type pair struct {
	name    string
	ops     []nixl.Op
	x, y    *nixl.Agent
	rx, ry  *nixl.Region
	tickets [2]nixl.TicketID // of y, by operation
}

type pairs []*pair

func (ps pairs) close() {
	for _, p := range ps {
		p.close()
	}
}

// buffer is memory that several agents can register and share.
type buffer struct{ *sharedmem.Memory }

// newBuffer returns resident memory: every page was written.
func newBuffer(n int) (buffer, error) {
	m, err := sharedmem.New("bench", n)
	if err != nil {
		return buffer{}, fmt.Errorf("memory of %s: %w", bytesText(int64(n)), err)
	}
	for i := 0; i < n; i += 4096 {
		m.Bytes()[i] = byte(i >> 12)
	}
	return buffer{m}, nil
}

func (b buffer) close() { _ = b.Close() } // memory of this process only

// route is a transport to be measured.
type route struct {
	name      string
	ops       []nixl.Op
	transport func() nixl.Transport
}

func newPairs(src, dst buffer) (_ pairs, err error) {
	var ps pairs
	defer func() {
		if err != nil {
			ps.close()
		}
	}()
	registry := local.NewRegistry(1) // as the agent of a node makes it
	routes := append([]route{{"local", []nixl.Op{nixl.Write}, registry.Transport}}, hostRoutes()...)
	overUCX, _ := ucxRoutes()
	routes = append(routes, overUCX...)
	both := []nixl.Op{nixl.Write, nixl.Read}
	for _, k := range append(routes,
		route{"tcp", both, func() nixl.Transport { return tcp.New(tcp.Options{Conns: tcpConns}) }},
		route{"tcp with checksums", both, func() nixl.Transport { return tcp.New(tcp.Options{Conns: tcpConns, Checksums: true}) }},
	) {
		p := &pair{name: k.name, ops: k.ops}
		ps = append(ps, p)
		if err := p.open(k.transport, src, dst); err != nil {
			return nil, fmt.Errorf("start agents over %s: %w", k.name, err)
		}
	}
	return ps, nil
}

func (p *pair) open(transport func() nixl.Transport, src, dst buffer) (err error) {
	key := handshake.RandomKey()
	if p.x, err = nixl.NewAgent(nixl.Config{Name: "x", Key: key, Transports: []nixl.Transport{transport()}}); err != nil {
		return err
	}
	if p.y, err = nixl.NewAgent(nixl.Config{Name: "y", Key: key, Transports: []nixl.Transport{transport()}}); err != nil {
		return err
	}
	if p.rx, err = p.x.Register(src, nixl.DRAM); err != nil {
		return err
	}
	if p.ry, err = p.y.Register(dst, nixl.DRAM); err != nil {
		return err
	}
	for op := range p.tickets {
		p.tickets[op], err = p.y.OpenTicket(nixl.TicketSpec{Access: nixl.Op(op), Descs: []nixl.Desc{p.ry.Desc(0, p.ry.Len())}, Tag: "bench"})
		if err != nil {
			return err
		}
	}
	if _, err := p.x.LoadRemote(p.y.Metadata()); err != nil {
		return err
	}
	_, err = p.y.LoadRemote(p.x.Metadata())
	return err
}

func (p *pair) close() {
	for _, a := range []*nixl.Agent{p.x, p.y} {
		if a != nil {
			_ = a.Close() // nothing is in flight
		}
	}
}

// transfer prepares moving all blocks: from here to there for a write, the reverse for a
// read.
func (p *pair) transfer(op nixl.Op, size int, here, there []int) (*nixl.Transfer, error) {
	n := uint64(size)
	var near, far []nixl.Desc
	for i := range here {
		near = append(near, p.rx.Desc(uint64(here[i])*n, n))
		far = append(far, p.ry.Desc(uint64(there[i])*n, n))
	}
	t, err := p.x.NewTransfer(op, near, far, "y", nixl.TransferOpts{Ticket: p.tickets[op], Notify: []byte("done")})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// errMoved is returned when a transfer delivered wrong bytes.
var errMoved = errors.New("the bytes that arrived are not those that were sent")

// prove runs a transfer once and compares the bytes, so that only working transfers are
// timed.
func (p *pair) prove(ctx context.Context, op nixl.Op, t *nixl.Transfer, src, dst []byte, size int, here, there []int) error {
	if op == nixl.Read {
		src, dst, here, there = dst, src, there, here
	}
	clear(dst)
	if err := p.move(ctx, op, t); err != nil {
		return err
	}
	for i := range here {
		if f, t := here[i]*size, there[i]*size; !bytes.Equal(src[f:f+size], dst[t:t+size]) {
			return fmt.Errorf("%s, %s, block %d of %s: %w", p.name, op, i, blockText(size), errMoved)
		}
	}
	return nil
}

// move posts a transfer and waits for its notification.
func (p *pair) move(ctx context.Context, op nixl.Op, t *nixl.Transfer) error {
	if st := t.Post(); st < 0 {
		return errors.Join(fmt.Errorf("post %s: %w", op, st), t.Err())
	}
	if err := t.Wait(ctx); err != nil {
		return err
	}
	return arrive(ctx, p.y)
}

// ping sends a notification in one direction and one back.
func (p *pair) ping(ctx context.Context) error {
	msg := make([]byte, pingSize)
	if err := p.x.Notify(ctx, "y", msg); err != nil {
		return err
	}
	if err := arrive(ctx, p.y); err != nil {
		return err
	}
	if err := p.y.Notify(ctx, "x", msg); err != nil {
		return err
	}
	return arrive(ctx, p.x)
}

func arrive(ctx context.Context, a *nixl.Agent) error {
	select {
	case <-a.Notifications():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
