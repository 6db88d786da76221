package emulator

import "math/bits"

// patience is for how many instructions lanes wait where ways join, before they go on
// without the others: these may wait for them in a loop.
const patience = 1 << 16

// release lets lanes go on that wait where ways join, if there are some.
func (w *warp) release() bool {
	for i := len(w.joins) - 1; i >= 0; i-- {
		if j := w.joins[i]; j.here != 0 {
			w.parts = append(w.parts, part{lanes: j.here, pc: j.pc, join: j.outer})
			j.want &^= j.here
			j.here = 0
			if j.want == 0 {
				w.forget(j)
			}
			return true
		}
	}
	return false
}

// collecting says whether lanes wait for others of the warp.
func (w *warp) collecting() bool {
	for i := range w.parts {
		if w.parts[i].waits && w.parts[i].members != 0 {
			return true
		}
	}
	return false
}

func (w *warp) forget(j *join) {
	for i, have := range w.joins {
		if have == j {
			w.joins = append(w.joins[:i], w.joins[i+1:]...)
			return
		}
	}
}

func (w *warp) remove(i int) {
	last := len(w.parts) - 1
	w.parts[i] = w.parts[last]
	w.parts = w.parts[:last]
}

// arrive parks lanes where ways join, until all are there.
func (w *warp) arrive(f part) {
	j := f.join
	j.here |= f.lanes
	w.alone = 0
	w.settle(j)
}

// settle lets the lanes at a join go on if all are there.
func (w *warp) settle(j *join) {
	if j.here != j.want {
		return
	}
	w.forget(j)
	if j.want != 0 {
		w.parts = append(w.parts, part{lanes: j.here, pc: j.pc, join: j.outer})
	}
}

// split makes two parts of one at a branch that some lanes take.
func (w *warp) split(i int, f part, taken uint32, in *instr) {
	if in.join >= 0 && (f.join == nil || f.join.pc != in.join) {
		j := &join{pc: in.join, want: f.lanes, outer: f.join}
		w.joins = append(w.joins, j)
		f.join = j
	}
	jumped := part{lanes: taken, pc: in.target, join: f.join}
	f.lanes &^= taken
	f.pc++
	w.parts[i] = f
	w.parts = append(w.parts, jumped)
}

// exit ends lanes: nobody waits for them any more.
func (w *warp) exit(j *join, lanes uint32) {
	w.alive &^= lanes
	for ; j != nil; j = j.outer {
		if j.want &^= lanes; j.want != 0 {
			w.settle(j)
		} else {
			w.forget(j)
		}
	}
	w.block.settle()
}

// collect executes an instruction of lanes that wait for each other, once they are all
// here. Without them the part waits.
func (w *warp) collect(i int, in *instr, mask uint32) bool {
	f := &w.parts[i]
	first := bits.TrailingZeros32(mask)
	members := mask
	if in.members >= 0 {
		members = uint32(w.r[in.members][first])
		for m := mask; m != 0; m &= m - 1 {
			if other := uint32(w.r[in.members][bits.TrailingZeros32(m)]); other != members {
				w.find(SyncCheck, in, bits.TrailingZeros32(m), 0, "the mask of lanes is %#x, and another lane's is %#x", other, members)
				break
			}
		}
	}
	members &= w.lanes // bits of lanes that a small block does not have
	if mask&^members != 0 {
		w.find(SyncCheck, in, bits.TrailingZeros32(mask&^members), 0, "the mask %#x does not have the lane that executes it", members)
		members |= mask
	}
	if gone := members &^ w.alive; gone != 0 {
		w.find(SyncCheck, in, first, 0, "the mask has lanes %#x, which have ended", gone)
		members &^= gone
	}
	if members&^mask == 0 {
		w.execute(in, mask)
		f.pc++
		return true
	}
	f.waits, f.members = true, mask
	together := uint32(0)
	for _, o := range w.parts {
		if o.waits && o.members != 0 && w.meets(o.pc, f.pc) {
			together |= o.members
		}
	}
	if members&^together != 0 {
		return false
	}
	w.execute(in, together&members)
	for _, t := range in.marks {
		w.given[t.slot] |= together
	}
	pc := f.pc
	for n := range w.parts {
		if o := &w.parts[n]; o.waits && o.members != 0 && o.members&^members == 0 && w.meets(o.pc, pc) {
			o.waits, o.members = false, 0
			o.pc++
		}
	}
	return true
}

// meets says whether lanes at two instructions meet: at the same one, or at two barriers of
// the warp.
func (w *warp) meets(a, b int32) bool {
	code := w.block.kernel.code
	return a == b || code[a].at.Opcode == "bar" && code[b].at.Opcode == "bar"
}
