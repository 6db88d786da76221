package emulator

import (
	"math/rand/v2"
	"strings"
)

// block is the threads that share memory. It is used for one block after the other.
type block struct {
	kernel *Kernel
	grid   *grid
	at     [3]int
	warps  []*warp

	shared   []byte
	shadow   shadow
	barriers [16]barrier
	first    uint64 // epoch: what is older is of another block
	last     *Allocation
	random   *rand.Rand

	mbarriers map[uint64]*mbarrier // by address
	arrivals  []arrival            // that have not come
	idle      int                  // times that warps asked in vain since something happened
	stopped   bool
}

// none is no allocation.
var none = &Allocation{}

func newBlock(g *grid) *block {
	k := g.kernel
	b := &block{kernel: k, grid: g, first: 1, last: none}
	n := (g.threads + 31) / 32
	b.shared = make([]byte, int(k.dynamicShared)+g.launch.SharedBytes)
	if g.launch.SharedBytes == 0 {
		b.shared = b.shared[:k.SharedBytes]
	}
	pieces := len(b.shared)>>k.granule + 1
	b.shadow = shadow{shift: k.granule, warps: n, writes: make([]stamp, pieces), reads: make([]uint64, pieces*n)}
	for i := range b.barriers {
		b.barriers[i].clock = make([]uint64, n)
	}
	for i := range n {
		w := &warp{block: b, index: i, r: make([]vector, k.registers), p: make([]uint32, k.predicates), given: make([]uint32, k.tracked), clock: make([]uint64, n), busy: map[int32]int{}, changed: map[int32]bool{}}
		for _, c := range k.constants {
			for l := range w.r[c.register] {
				w.r[c.register][l] = c.value
			}
		}
		b.warps = append(b.warps, w)
	}
	return b
}

// threadAt is the place of a thread by its number.
func (b *block) threadAt(n int) [3]int {
	size := b.grid.launch.Block
	return [3]int{n % size[0], n / size[0] % size[1], n / size[0] / size[1]}
}

// poison fills shared memory that was not written: NaN in every format.
const poison = 0xff

// run executes one block of the grid.
func (b *block) run(at [3]int, seed uint64) {
	b.at, b.random, b.stopped = at, rand.New(rand.NewPCG(b.grid.launch.Seed, seed)), false
	for i := range b.shared {
		b.shared[i] = poison
	}
	b.mbarriers, b.arrivals, b.idle = map[uint64]*mbarrier{}, b.arrivals[:0], 0
	for i := range b.barriers {
		b.barriers[i].arrived = 0
		clear(b.barriers[i].clock)
	}
	// Epochs of earlier blocks are over.
	for _, w := range b.warps {
		b.first = max(b.first, w.clock[w.index]+1)
	}
	for i, w := range b.warps {
		for o := range w.clock {
			w.clock[o] = b.first - 1
		}
		w.clock[i] = b.first
		lanes := uint32(allLanes)
		if rest := b.grid.threads - i*32; rest < 32 {
			lanes = 1<<rest - 1
		}
		w.stuck = false
		w.start(lanes)
		b.place(w)
	}
	ready := make([]*warp, 0, len(b.warps))
	for left := b.grid.launch.limit(); !b.stopped; {
		ready = ready[:0]
		for _, w := range b.warps {
			if len(w.parts) > 0 && !w.stuck {
				ready = append(ready, w)
			}
		}
		if len(ready) == 0 {
			b.end()
			return
		}
		w := ready[b.random.IntN(len(ready))]
		did := w.run(64 + b.random.IntN(2048))
		w.stuck = did == 0
		if left -= did; left < 0 {
			b.tell(EndCheck, w, "the block has not ended after %d instructions of its warps", b.grid.launch.limit())
			return
		}
	}
}

// end looks for threads that will never go on, and for what was left undone.
func (b *block) end() {
	last := &b.kernel.code[len(b.kernel.code)-1]
	for _, w := range b.warps {
		if first := b.warps[w.index&^3]; w.order != first.order {
			w.find(SyncCheck, last, 0, 0, "the warps of a group begin other products (wgmma) than its first one")
		}
		if len(w.begun) > 0 || len(w.products) > 0 {
			w.find(SyncCheck, last, 0, 0, "the warp ends without a wait for its products (wgmma)")
		}
	}
	if len(b.arrivals) > 0 {
		a := b.arrivals[0]
		a.w.find(SyncCheck, a.in, a.lane, a.to, "the block ends while the copy is under way")
	}
	for address, m := range b.mbarriers {
		if m.bytes != 0 && len(b.arrivals) == 0 {
			b.find(SyncCheck, last, m.by.warp()*32+m.by.lane(), address, "%d bytes that an mbarrier was told of have not come", m.bytes)
		}
	}
	for _, w := range b.warps {
		if len(w.parts) == 0 {
			continue
		}
		if w.parts[0].members != 0 {
			b.tell(SyncCheck, w, "waits for lanes that do not come")
		} else {
			at := b.barriers[w.parts[0].barrier]
			b.tell(SyncCheck, w, "waits at barrier %d, where %d of %d threads come: the others have ended or wait elsewhere", w.parts[0].barrier, at.arrived, at.want)
		}
		return
	}
}

// tell notes what is wrong with a warp as a whole, and ends the block.
func (b *block) tell(check Check, w *warp, format string, args ...any) {
	pc := w.parts[0].pc
	if w.parts[0].waits && w.parts[0].members == 0 {
		pc--
	}
	lane := 0
	for w.parts[0].lanes>>lane&1 == 0 {
		lane++
	}
	w.find(check, &b.kernel.code[pc], lane, 0, format, args...)
	b.stopped = true
}

// isSpecial says whether a special register is known.
func isSpecial(name string) bool {
	base, axis, _ := strings.Cut(name, ".")
	switch base {
	case "tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid":
		return axis == "x" || axis == "y" || axis == "z"
	case "laneid", "warpid", "nwarpid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
		"dynamic_smem_size", "total_smem_size", "cluster_ctarank", "cluster_nctarank", "smid", "nsmid":
		return axis == ""
	}
	return false
}

// place sets a warp's special registers.
func (b *block) place(w *warp) {
	for _, s := range b.kernel.specials {
		for l := range w.r[s.register] {
			w.r[s.register][l] = b.special(s.name, w.index*32+l)
		}
	}
}

func (b *block) special(name string, n int) uint64 {
	base, axis, _ := strings.Cut(name, ".")
	i := strings.Index("xyz", axis)
	l := &b.grid.launch
	lane := uint(n % 32)
	switch base {
	case "tid":
		return uint64(b.threadAt(n)[i])
	case "ntid":
		return uint64(l.Block[i])
	case "ctaid", "clusterid":
		return uint64(b.at[i])
	case "nctaid", "nclusterid":
		return uint64(l.Grid[i])
	case "cluster_nctaid", "cluster_nctarank", "nsmid":
		return 1
	case "laneid":
		return uint64(lane)
	case "warpid":
		return uint64(n / 32)
	case "nwarpid":
		return uint64(len(b.warps))
	case "lanemask_eq":
		return 1 << lane
	case "lanemask_lt":
		return 1<<lane - 1
	case "lanemask_le":
		return 2<<lane - 1
	case "lanemask_gt":
		return allLanes &^ (2<<lane - 1)
	case "lanemask_ge":
		return allLanes &^ (1<<lane - 1)
	case "dynamic_smem_size":
		return uint64(l.SharedBytes)
	case "total_smem_size":
		return uint64(len(b.shared))
	}
	return 0 // the first of its cluster, on the first multiprocessor
}

func (b *block) find(check Check, in *instr, thread int, address uint64, format string, args ...any) {
	b.grid.find(b, check, in, thread, address, format, args...)
}
