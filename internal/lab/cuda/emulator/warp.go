package emulator

import (
	"math/bits"
	"math/rand/v2"
)

// vector is a register of all lanes of a warp.
type vector = [32]uint64

const allLanes = 0xffffffff

// warp is up to 32 threads that execute instructions together.
type warp struct {
	block *block
	index int
	r     []vector
	p     []uint32
	given []uint32 // lanes that wrote a tracked register
	lanes uint32   // that there are
	alive uint32   // that have not ended
	parts []part
	joins []*join // places where some lanes wait for others
	stuck bool    // nothing can go on before another warp does something

	clock    []uint64 // what it knows of each warp of the block: epochs that have ended
	copies   [32]copies
	products [][]started // groups that are under way
	begun    []started   // that belong to no group yet
	busy     map[int32]int
	changed  map[int32]bool
	order    uint64 // of products
	wrote    []int  // pieces of shared memory, since the last fence
	yields   bool   // waits for another warp

	alone   int // instructions since lanes last came to where ways join
	scratch vector

	how      uint64 // the access at hand is done
	conflict conflicting
}

// part is lanes of a warp that stand at the same instruction.
type part struct {
	lanes   uint32
	pc      int32
	join    *join
	waits   bool
	members uint32 // those that wait for others of the warp
	barrier int    // of the block that it waits at
}

// join is the place at which parts of a warp that came from one reconverge.
type join struct {
	pc         int32
	want, here uint32
	outer      *join
}

// start begins a block, or the same warp of another one.
func (w *warp) start(lanes uint32) {
	w.lanes, w.alive = lanes, lanes
	w.parts, w.joins = append(w.parts[:0], part{lanes: lanes}), w.joins[:0]
	clear(w.given)
	for i := range w.copies {
		w.copies[i] = copies{}
	}
	w.products, w.begun, w.order, w.wrote = nil, nil, 0, w.wrote[:0]
	clear(w.busy)
	clear(w.changed)
}

func (w *warp) random() *rand.Rand { return w.block.random }

// put writes a register in some lanes.
func (w *warp) put(d int32, from *vector, lanes uint32) {
	to := &w.r[d]
	if lanes == allLanes {
		*to = *from
		return
	}
	for m := lanes; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		to[l] = from[l]
	}
}

func (w *warp) predicate(n int32, negated bool) uint32 {
	v := w.p[n]
	if negated {
		return ^v
	}
	return v
}

func (w *warp) setPredicate(n int32, v, lanes uint32) {
	w.p[n] = w.p[n]&^lanes | v&lanes
}

// run lets parts of the warp go on for about so many instructions. It returns how many
// there were, 0 when none can go on.
func (w *warp) run(quantum int) (did int) {
	w.yields = false
	for did < quantum && len(w.parts) > 0 && !w.yields {
		ready, n := -1, uint32(0)
		for i := range w.parts {
			if !w.parts[i].waits {
				if n++; n == 1 || w.random().Uint32N(n) == 0 {
					ready = i
				}
			}
		}
		if ready < 0 {
			if did == 0 && w.collecting() && w.release() {
				continue
			}
			return did
		}
		n = uint32(w.advance(ready, quantum-did))
		did += int(n)
		if w.alone += int(n); w.alone > patience {
			w.alone = 0
			w.release()
		}
	}
	return did
}

// advance executes instructions of a part until it waits, ends, or meets others.
func (w *warp) advance(i, quantum int) (did int) {
	code := w.block.kernel.code
	f := w.parts[i]
	for did < quantum {
		if f.join != nil && f.pc == f.join.pc {
			w.remove(i)
			w.arrive(f)
			return did + 1
		}
		did++
		in := &code[f.pc]
		mask := f.lanes
		if in.guard >= 0 {
			if in.negated {
				mask &^= w.p[in.guard]
			} else {
				mask &= w.p[in.guard]
			}
		}
		if in.checks != nil {
			w.checkGiven(in, f.lanes, mask)
		}
		if in.held != nil && mask != 0 {
			w.checkHeld(in, mask)
		}
		switch in.kind {
		case kindPlain:
			if mask != 0 {
				w.execute(in, mask)
			}
			f.pc++
		case kindBranch:
			if mask == 0 {
				f.pc++
				break
			}
			if mask == f.lanes {
				f.pc = in.target
				break
			}
			w.split(i, f, mask, in)
			return did
		case kindExit:
			if mask == 0 {
				f.pc++
				break
			}
			f.lanes &^= mask
			f.pc++
			if f.lanes == 0 {
				w.remove(i)
				w.exit(f.join, mask)
				return did
			}
			w.parts[i] = f
			w.exit(f.join, mask)
			return did
		case kindAligned:
			if mask == 0 {
				f.pc++
				break
			}
			if mask != w.lanes {
				w.find(SyncCheck, in, bits.TrailingZeros32(mask), 0, "wants all lanes of the warp, and %#x of %#x are here", mask, w.lanes)
			}
			w.execute(in, mask)
			f.pc++
		case kindBarrier:
			if mask == 0 {
				f.pc++
				break
			}
			f.pc++
			f.barrier, f.waits = w.barrier(in, mask)
			w.parts[i] = f
			w.block.settle()
			if f.waits {
				return did
			}
		case kindCollective:
			if mask == 0 {
				f.pc++
				break
			}
			w.parts[i] = f
			if !w.collect(i, in, mask) {
				return did
			}
			f = w.parts[i]
		}
		if in.marks != nil && mask != 0 {
			for _, t := range in.marks {
				w.given[t.slot] |= mask
			}
		}
		if w.block.stopped || w.yields {
			break
		}
	}
	w.parts[i] = f
	return did
}

// checkGiven looks whether registers hold something.
func (w *warp) checkGiven(in *instr, here, mask uint32) {
	for _, t := range in.checks {
		lanes := mask
		if t.guard {
			lanes = here
		}
		if missing := lanes &^ w.given[t.slot]; missing != 0 {
			w.find(UninitializedCheck, in, bits.TrailingZeros32(missing), 0, "register %s was not written", t.name)
			w.given[t.slot] |= missing // once is enough
		}
	}
}

// find notes a mistake of a lane.
func (w *warp) find(check Check, in *instr, lane int, address uint64, format string, args ...any) {
	w.block.find(check, in, w.index*32+lane, address, format, args...)
}
