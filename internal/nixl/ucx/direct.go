package ucx

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/ucx/ucp"
)

// direct moves bytes with one-sided access: the devices read and write the memory of
// both ends.
type direct struct {
	x      *xfer
	to     []*remoteRegion // by descriptor
	from   []*region
	next   int    // descriptor to be posted
	off    uint64 // in it
	pieces []piece
}

// piece is posted at once and flushed: when all its requests are done, the bytes are in
// the memory they were meant for, and nothing touches either end any more.
type piece struct {
	reqs  []ucp.Request
	bytes uint64
}

func newDirect(x *xfer) (*direct, error) {
	d := &direct{x: x, to: make([]*remoteRegion, len(x.where)), from: make([]*region, len(x.where))}
	var there *remoteRegion
	var here *region
	for i, desc := range x.where {
		if there == nil || !there.base.Covers(desc) {
			if there = x.s.region(desc); there == nil {
				return nil, fmt.Errorf("permit for memory that was not handed over: %w", errProtocol)
			}
		}
		if l := x.job.Local[i]; here == nil || !here.holds(l) {
			if here = x.s.t.regions.holding(l); here == nil {
				return nil, fmt.Errorf("local descriptor %d is of no mapped region: %w", i, nixl.ErrBackend)
			}
		}
		d.to[i], d.from[i] = there, here
	}
	return d, nil
}

func (d *direct) landed() (bytes uint64, pieces int, err error) {
	for len(d.pieces) > 0 {
		p := &d.pieces[0]
		for len(p.reqs) > 0 { // the flush is the last, and mostly the last to end
			last := len(p.reqs) - 1
			done, err := d.x.s.e.finished(p.reqs[last])
			if err != nil {
				p.reqs = p.reqs[:last]
				return bytes, len(d.pieces), err
			}
			if !done {
				return bytes, len(d.pieces), nil
			}
			p.reqs = p.reqs[:last]
		}
		bytes += p.bytes
		d.pieces = d.pieces[1:]
	}
	return bytes, 0, nil
}

func (d *direct) post() (bool, error) {
	job, ep := d.x.job, d.x.s.port.ep
	if d.next == len(d.to) {
		return false, nil
	}
	d.pieces = append(d.pieces, piece{})
	p := &d.pieces[len(d.pieces)-1]
	add := func(r ucp.Request, err error) error {
		if err != nil {
			return fmt.Errorf("post: %w", err)
		}
		if r != 0 {
			p.reqs = append(p.reqs, r)
		}
		return nil
	}
	for n := 0; n < pieceDescs && p.bytes < pieceBytes && d.next < len(d.to); n++ {
		desc, to := d.x.where[d.next], d.to[d.next]
		take := min(desc.Len-d.off, pieceBytes-p.bytes)
		local, remote := job.Local[d.next][d.off:d.off+take], to.addr+(desc.Addr-to.base.Addr)+d.off
		access := ep.Get
		if job.Op == nixl.Write {
			access = ep.Put
		}
		if err := add(access(local, d.from[d.next].mem, remote, to.key)); err != nil {
			return false, err
		}
		p.bytes += take
		if d.off += take; d.off == desc.Len {
			d.next, d.off = d.next+1, 0
		}
	}
	return true, add(ep.Flush())
}

func (d *direct) data(uint64, []byte) {}

func (d *direct) abandon() {
	for _, p := range d.pieces {
		for _, r := range p.reqs {
			d.x.s.e.lib.Free(r)
		}
	}
	d.pieces = nil
}
