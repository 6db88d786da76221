package nixl

import (
	"fmt"
	"math"
	"slices"
)

// Run stands for Count blocks of the same length, Stride bytes apart: what a pool
// of blocks is in one value instead of a descriptor per block.
type Run struct {
	First  Desc   // the first block
	Stride uint64 // bytes from the start of a block to that of the next; First.Len when dense
	Count  int
}

// Blocks returns the blocks of n bytes that the region consists of, one behind the
// other; what is left at the end is not part of a block.
func (r *Region) Blocks(n uint64) Run { return blocksOf(r.base, n) }

// Blocks returns the blocks of n bytes that the region consists of, one behind the
// other; what is left at the end is not part of a block.
func (r RemoteRegion) Blocks(n uint64) Run { return blocksOf(r.Base, n) }

func blocksOf(base Desc, n uint64) Run {
	if n == 0 {
		return Run{}
	}
	return Run{First: subDesc(base, 0, n), Stride: n, Count: int(min(base.Len/n, math.MaxInt32))}
}

func (r Run) at(i int) Desc {
	d := r.First
	d.Addr += uint64(i) * r.Stride
	return d
}

// extent is all of the run, gaps included; ok is false for one that is malformed.
func (r Run) extent() (_ Desc, ok bool) {
	if r.Count < 1 || r.Count > math.MaxInt32 || !r.First.valid() || (r.Count > 1 && r.Stride < r.First.Len) {
		return Desc{}, false
	}
	steps := uint64(r.Count - 1)
	if steps > 0 && r.Stride > (math.MaxInt64-r.First.Len)/steps {
		return Desc{}, false
	}
	d := r.First
	d.Len += steps * r.Stride
	return d, d.valid()
}

// Prepared is one side of transfers: a list of blocks that was checked once and is
// selected from by index. It takes memory per run, not per block, owns nothing and
// needs no release. It is safe to use by several goroutines at a time.
type Prepared struct {
	agent *Agent
	peer  *peer // nil for the local side
	runs  []preparedRun
	count int
}

type preparedRun struct {
	Run
	start int // index of its first block
}

// PrepareLocal makes a list of blocks of this agent's regions. Blocks are numbered
// from 0 on, run by run.
//
// Errors: ErrInvalidParam for malformed runs, ErrNotFound for memory that is not
// registered.
func (a *Agent) PrepareLocal(runs ...Run) (*Prepared, error) {
	p, err := a.prepare(nil, runs, a.regions.check)
	if err != nil {
		return nil, fmt.Errorf("prepare local blocks: %w", err)
	}
	return p, nil
}

// PrepareRemote makes a list of blocks of a loaded peer's regions. The peer's
// metadata is fixed here: after the peer was invalidated, lost, or loaded under
// another incarnation, transfers of the list fail with ErrNotFound.
//
// Errors: ErrInvalidParam for malformed runs, ErrNotFound for a peer that is not
// loaded and for memory outside of its regions.
func (a *Agent) PrepareRemote(peer string, runs ...Run) (*Prepared, error) {
	rp := a.current(peer)
	if rp == nil {
		return nil, fmt.Errorf("prepare blocks of %q: peer is not loaded: %w", peer, ErrNotFound)
	}
	p, err := a.prepare(rp, runs, rp.covers)
	if err != nil {
		return nil, fmt.Errorf("prepare blocks of %q: %w", peer, err)
	}
	return p, nil
}

// prepare checks each run as a whole where one region covers it, else block by block.
func (a *Agent) prepare(rp *peer, runs []Run, check func([]Desc) error) (*Prepared, error) {
	p := &Prepared{agent: a, peer: rp, runs: make([]preparedRun, 0, len(runs))}
	for i, r := range runs {
		all, ok := r.extent()
		if !ok || p.count > math.MaxInt32-r.Count {
			return nil, fmt.Errorf("run %d (%d blocks from %s on, stride %d) is malformed: %w", i, r.Count, r.First, r.Stride, ErrInvalidParam)
		}
		if check([]Desc{all}) != nil {
			for k := range r.Count {
				if err := check([]Desc{r.at(k)}); err != nil {
					return nil, fmt.Errorf("block %d: %w", p.count+k, err)
				}
			}
		}
		p.runs = append(p.runs, preparedRun{r, p.count})
		p.count += r.Count
	}
	if p.count == 0 {
		return nil, fmt.Errorf("no blocks: %w", ErrInvalidParam)
	}
	return p, nil
}

// Len is the number of blocks.
func (p *Prepared) Len() int { return p.count }

// Desc returns block i; ok is false when there is none.
func (p *Prepared) Desc(i int32) (_ Desc, ok bool) {
	if i < 0 || int(i) >= p.count {
		return Desc{}, false
	}
	n := 0
	if len(p.runs) > 1 {
		var found bool
		n, found = slices.BinarySearchFunc(p.runs, int(i), func(r preparedRun, at int) int { return r.start - at })
		if !found {
			n--
		}
	}
	return p.runs[n].at(int(i) - p.runs[n].start), true
}

// MakeTransfer prepares a transfer of blocks selected by index from two lists:
// localIdx[i] pairs up with remoteIdx[i]. Neighbors that are contiguous on both sides
// travel as one descriptor; nothing is allocated per block. The slices are not kept.
//
// Errors: ErrInvalidParam for lists of the wrong side, unequal or empty selections,
// indices out of range and blocks of unequal length; ErrNotFound when the memory or
// the peer's metadata is gone.
func (a *Agent) MakeTransfer(op Op, local *Prepared, localIdx []int32, remote *Prepared, remoteIdx []int32, opts TransferOpts) (*Transfer, error) {
	fail := func(st Status, format string, args ...any) (*Transfer, error) {
		return nil, fmt.Errorf("prepare %s of blocks: %s: %w", op, fmt.Sprintf(format, args...), st)
	}
	switch {
	case local == nil || remote == nil || local.agent != a || remote.agent != a:
		return fail(ErrInvalidParam, "a list is missing or was prepared by another agent")
	case local.peer != nil || remote.peer == nil:
		return fail(ErrInvalidParam, "the first list must be local and the second one remote")
	case len(localIdx) == 0 || len(localIdx) != len(remoteIdx):
		return fail(ErrInvalidParam, "%d local and %d remote indices", len(localIdx), len(remoteIdx))
	}
	merged := 0
	var last [2]Desc
	for i := range localIdx {
		l, okL := local.Desc(localIdx[i])
		r, okR := remote.Desc(remoteIdx[i])
		switch {
		case !okL || !okR:
			return fail(ErrInvalidParam, "pair %d selects local block %d of %d and remote block %d of %d", i, localIdx[i], local.count, remoteIdx[i], remote.count)
		case l.Len != r.Len:
			return fail(ErrInvalidParam, "pair %d is %d bytes here and %d there", i, l.Len, r.Len)
		}
		if i == 0 || !adjacent(last[0], l) || !adjacent(last[1], r) {
			merged++
		}
		last = [2]Desc{l, r}
	}
	ls, rs := make([]Desc, 0, merged), make([]Desc, 0, merged)
	for i := range localIdx {
		l, _ := local.Desc(localIdx[i])
		r, _ := remote.Desc(remoteIdx[i])
		ls, rs = appendPair(ls, rs, l, r)
	}
	p := remote.peer
	if a.current(p.Name) != p {
		return fail(ErrNotFound, "peer %q was invalidated, replaced or lost", p.Name)
	}
	if err := p.covers(rs); err != nil { // its regions may have changed since
		return nil, fmt.Errorf("prepare %s with %q: %w", op, p.Name, err)
	}
	return a.newTransfer(op, ls, rs, p, opts)
}
