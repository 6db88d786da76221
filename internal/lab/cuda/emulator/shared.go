package emulator

import "fmt"

// shadow remembers who used each piece of shared memory, and when. Times are epochs of a
// warp, which end at its barriers; they go on from block to block.
type shadow struct {
	shift  uint
	warps  int
	writes []stamp
	reads  []uint64 // for each piece and warp: epoch, and lane, or several
}

// stamp is a write: epoch, warp, lane and kind.
type stamp uint64

const (
	byCopy   = 1 << 0 // asynchronous, and not waited for
	byAtomic = 1 << 1
	byWarp   = 1 << 2 // any lane may have the bytes; in warp.how only
	byUnit   = 1 << 3 // the unit of wgmma reads; in warp.how only
	several  = 63     // lanes of a warp that used it in the same epoch

	// hidden is a write by a thread that the units of copies and products do not see before
	// a fence.
	hidden = 1 << 15
)

func newStamp(epoch uint64, warp, lane int, how uint64) stamp {
	return stamp(epoch<<16 | uint64(warp)<<8 | uint64(lane)<<2 | how&(byCopy|byAtomic))
}

func (s stamp) epoch() uint64 { return uint64(s >> 16) }
func (s stamp) warp() int     { return int(s >> 8 & 0x7f) }
func (s stamp) lane() int     { return int(s >> 2 & 0x3f) }

// shared finds shared memory of an access.
func (w *warp) shared(in *instr, lane int, address uint64, n int, writes bool) []byte {
	m := w.block.shared
	off := address - sharedBase
	if address < sharedBase || off+uint64(n) > uint64(len(m)) {
		if address >= sharedWindow {
			w.find(MemoryCheck, in, lane, address, "a generic address, where one of shared memory should be")
		} else {
			w.find(MemoryCheck, in, lane, address, "%d bytes beyond the block's shared memory, which ends at %#x", n, sharedBase+len(m))
		}
		return nil
	}
	if off&uint64(n-1) != 0 {
		w.find(MemoryCheck, in, lane, address, "is no multiple of %d", n)
		return nil
	}
	if writes {
		if w.how&byAtomic != 0 {
			w.sawRead(in, lane, address, n) // also what was never written
		}
		w.sawWrite(in, lane, address, n)
	} else {
		w.sawRead(in, lane, address, n)
	}
	return m[off:][:n:n]
}

// knows says whether what a warp did in an epoch is before what this lane does.
func (w *warp) knows(warp, lane int, epoch uint64, me int) bool {
	if warp == w.index {
		return lane == me && me != several || epoch < w.clock[warp]
	}
	return epoch <= w.clock[warp]
}

// conflicting is another thread's access to bytes of a write. It is harmless if it wrote the
// same value.
type conflicting struct {
	is      bool
	address uint64
	by      string
}

func (w *warp) raced(in *instr, lane int) {
	w.find(RaceCheck, in, lane, w.conflict.address, "is written, and %s without a barrier between", w.conflict.by)
	w.conflict.is = false
}

// sawRead notes a read.
func (w *warp) sawRead(in *instr, lane int, address uint64, n int) {
	s := &w.block.shadow
	first := int(address-sharedBase) >> s.shift
	now := w.clock[w.index]
	me := lane
	if w.how&byWarp != 0 {
		me = several
	}
	for g := first; g <= int(address-sharedBase+uint64(n)-1)>>s.shift; g++ {
		wrote := s.writes[g]
		switch {
		case wrote.epoch() < w.block.first:
			w.find(UninitializedCheck, in, lane, address, "shared memory was not written")
			s.writes[g] = newStamp(w.block.first, w.index, lane, byAtomic)
		case wrote&byCopy != 0:
			w.find(RaceCheck, in, lane, address, "is read while %s copies to it, without a wait for the copy", w.block.thread(wrote))
		case wrote&byAtomic != 0 && w.how&byAtomic != 0:
		case !w.knows(wrote.warp(), wrote.lane(), wrote.epoch(), me):
			w.find(RaceCheck, in, lane, address, "is read, and %s wrote it without a barrier between", w.block.thread(wrote))
		}
		if w.how&byUnit != 0 && s.writes[g]&hidden != 0 {
			w.find(SyncCheck, in, lane, address, "is read by wgmma, and no fence.proxy.async came after %s wrote it", w.block.thread(wrote))
			s.writes[g] &^= hidden // once is enough
		}
		if w.how&byAtomic != 0 {
			continue
		}
		cell := &s.reads[g*s.warps+w.index]
		if *cell>>6 != now {
			*cell = now<<6 | uint64(me)
		} else if *cell&63 != uint64(me) {
			*cell |= several
		}
	}
}

// sawWrite notes a write. Who wrote the same bytes at the same time may have written the
// same: the caller finds out.
func (w *warp) sawWrite(in *instr, lane int, address uint64, n int) {
	s := &w.block.shadow
	first := int(address-sharedBase) >> s.shift
	now := w.clock[w.index]
	me := lane
	if w.how&byWarp != 0 {
		me = several
	}
	for g := first; g <= int(address-sharedBase+uint64(n)-1)>>s.shift; g++ {
		wrote := s.writes[g]
		switch {
		case wrote.epoch() < w.block.first:
		case wrote&byCopy != 0:
			w.find(RaceCheck, in, lane, address, "is written while %s copies to it, without a wait for the copy", w.block.thread(wrote))
		case wrote&byAtomic != 0 && w.how&byAtomic != 0:
		case !w.knows(wrote.warp(), wrote.lane(), wrote.epoch(), me):
			w.conflict = conflicting{true, address, w.block.thread(wrote) + " wrote it"}
		}
		for other, cell := range s.reads[g*s.warps : (g+1)*s.warps] {
			epoch := cell >> 6
			if epoch < w.block.first {
				continue
			}
			if by := int(cell & 63); !w.knows(other, by, epoch, me) {
				w.find(RaceCheck, in, lane, address, "is written, and %s read it without a barrier between", w.block.thread(newStamp(epoch, other, by, 0)))
			}
		}
		s.writes[g] = newStamp(now, w.index, me, w.how)
		if w.block.kernel.async && w.how&byCopy == 0 {
			s.writes[g] |= hidden
			w.wrote = append(w.wrote, g)
		}
	}
}

// show has the units of copies and products see what lanes wrote.
func (w *warp) show(lanes uint32) {
	s := &w.block.shadow
	rest := w.wrote[:0]
	for _, g := range w.wrote {
		switch wrote := s.writes[g]; {
		case wrote&hidden == 0 || wrote.epoch() < w.block.first || wrote.warp() != w.index:
		case wrote.lane() == several || lanes>>wrote.lane()&1 != 0:
			s.writes[g] &^= hidden
		default:
			rest = append(rest, g)
		}
	}
	w.wrote = rest
}

// thread says whose stamp it is.
func (b *block) thread(s stamp) string {
	if s.lane() == several {
		return fmt.Sprintf("warp %d", s.warp())
	}
	t := b.threadAt(s.warp()*32 + s.lane())
	return fmt.Sprintf("thread %d,%d,%d", t[0], t[1], t[2])
}
