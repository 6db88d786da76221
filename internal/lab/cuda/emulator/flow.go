package emulator

import (
	"slices"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// flow is the control flow of a kernel.
type flow struct {
	k      *Kernel
	starts []int32 // first instructions of basic blocks
	of     []int32 // block of each instruction
	next   [][]int32
	back   [][]int32
}

func newFlow(k *Kernel) *flow {
	f := &flow{k: k, of: make([]int32, len(k.code))}
	leader := make([]bool, len(k.code)+1)
	leader[0] = true
	for i := range k.code {
		switch in := &k.code[i]; in.kind {
		case kindBranch:
			leader[in.target], leader[i+1] = true, true
		case kindExit:
			leader[i+1] = true
		}
	}
	for i := range k.code {
		if leader[i] {
			f.starts = append(f.starts, int32(i))
		}
		f.of[i] = int32(len(f.starts) - 1)
	}
	f.next, f.back = make([][]int32, len(f.starts)), make([][]int32, len(f.starts))
	for b := range f.starts {
		last := &k.code[f.end(b)-1]
		add := func(to int32) {
			if !slices.Contains(f.next[b], to) {
				f.next[b] = append(f.next[b], to)
				f.back[to] = append(f.back[to], int32(b))
			}
		}
		if last.kind == kindBranch {
			add(f.of[last.target])
		}
		if (last.kind == kindPlain || last.kind > kindExit || last.guard >= 0) && b+1 < len(f.starts) {
			add(int32(b + 1))
		}
	}
	return f
}

// end is the instruction behind a block.
func (f *flow) end(b int) int32 {
	if b+1 < len(f.starts) {
		return f.starts[b+1]
	}
	return int32(len(f.k.code))
}

// joins finds for each branch where all its ways lead: its immediate post-dominator, by
// the algorithm of Cooper, Harvey and Kennedy on the graph turned around.
func (f *flow) joins() {
	n := len(f.starts)
	exit := int32(n) // behind all ends
	rank := make([]int32, n+1)
	var order []int32
	seen := make([]bool, n)
	// Depth first from the ends, without recursion.
	type frame struct {
		b    int32
		next int
	}
	for b := range n {
		if len(f.next[b]) > 0 || seen[b] {
			continue
		}
		seen[b] = true
		for stack := []frame{{b: int32(b)}}; len(stack) > 0; {
			top := &stack[len(stack)-1]
			if top.next < len(f.back[top.b]) {
				if p := f.back[top.b][top.next]; !seen[p] {
					seen[p] = true
					top.next++
					stack = append(stack, frame{b: p})
				} else {
					top.next++
				}
				continue
			}
			order = append(order, top.b)
			stack = stack[:len(stack)-1]
		}
	}
	for i, b := range order {
		rank[b] = int32(i)
	}
	rank[exit] = int32(n)
	const unknown = -1
	dom := slices.Repeat([]int32{unknown}, n+1)
	dom[exit] = exit
	for changed := true; changed; {
		changed = false
		for _, b := range slices.Backward(order) {
			to := int32(unknown)
			if f.ends(int(b)) {
				to = exit
			}
			for _, s := range f.next[b] {
				if dom[s] == unknown {
					continue
				}
				if to == unknown {
					to = s
					continue
				}
				for a := s; a != to; {
					if rank[a] < rank[to] {
						a = dom[a]
					} else {
						to = dom[to]
					}
				}
			}
			if dom[b] != to {
				dom[b], changed = to, true
			}
		}
	}
	for i := range f.k.code {
		if in := &f.k.code[i]; in.kind == kindBranch {
			in.join = -1
			if to := dom[f.of[i]]; to != unknown && to != exit {
				in.join = f.starts[to]
			}
		}
	}
}

// ends says whether a block may end the thread.
func (f *flow) ends(b int) bool { return f.k.code[f.end(b)-1].kind == kindExit }

// set of registers.
type set []uint64

func (s set) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }

// track finds registers that may be read before they are written on some way, and has
// those watched when the kernel runs.
func (f *flow) track(of *ptx.Function, place []int32) {
	n := len(of.Registers)
	words := (n + 63) / 64
	uses := make([]use, len(of.Body))
	for i := range of.Body {
		uses[i] = usesOf(&of.Body[i])
	}
	full := make(set, words)
	for i := range full {
		full[i] = ^uint64(0)
	}
	in := make([]set, len(f.starts)) // what is written before each block, whatever the way
	for b := range in {
		in[b] = slices.Clone(full)
	}
	in[0] = make(set, words)
	through := func(b int, each func(i int, have set)) set {
		have := slices.Clone(in[b])
		for i := int(f.starts[b]); i < int(f.end(b)) && i < len(of.Body); i++ {
			if each != nil {
				each(i, have)
			}
			if of.Body[i].Guard < 0 {
				for _, r := range uses[i].writes {
					have.add(r)
				}
			}
		}
		return have
	}
	for changed := true; changed; {
		changed = false
		for b := range f.starts {
			out := through(b, nil)
			for _, s := range f.next[b] {
				for w := range out {
					if v := in[s][w] & out[w]; v != in[s][w] {
						in[s][w], changed = v, true
					}
				}
			}
		}
	}
	slots := map[int]int{}
	for b := range f.starts {
		through(b, func(i int, have set) {
			check := func(r int, guard bool) {
				if have.has(r) {
					return
				}
				if _, known := slots[r]; !known {
					slots[r] = len(slots)
				}
				f.k.code[i].checks = append(f.k.code[i].checks, tracked{slots[r], of.Registers[r].Name, guard})
			}
			for _, r := range uses[i].reads {
				check(r, false)
			}
			if g := of.Body[i].Guard; g >= 0 {
				check(g, true)
			}
		})
	}
	f.k.tracked = len(slots)
	for i := range of.Body {
		for _, r := range uses[i].writes {
			if slot, ok := slots[r]; ok {
				f.k.code[i].marks = append(f.k.code[i].marks, tracked{slot: slot, name: of.Registers[r].Name})
			}
		}
	}
}

// use is the registers of an instruction.
type use struct{ writes, reads []int }

// usesOf tells results from other operands: the first operand is the result, unless the
// opcode has none.
func usesOf(in *ptx.Instruction) (u use) {
	var walk func(o ptx.Operand, to *[]int)
	walk = func(o ptx.Operand, to *[]int) {
		switch o.Kind {
		case ptx.InRegister:
			*to = append(*to, o.Register)
		case ptx.Memory:
			to = &u.reads
		}
		for _, e := range o.Elements {
			walk(e, to)
		}
	}
	for i, o := range in.Operands {
		to := &u.reads
		if i == 0 && !resultless[in.Opcode] {
			to = &u.writes
		}
		walk(o, to)
	}
	// Products add to what they write, unless they are told not to.
	if in.Opcode == "wgmma" && len(in.Operands) > 3 && in.Operands[3].Kind == ptx.Integer && in.Operands[3].Bits != 0 {
		walk(in.Operands[0], &u.reads)
	}
	return u
}

// resultless are opcodes whose first operand is none that is written.
var resultless = map[string]bool{
	"st": true, "red": true, "bra": true, "bar": true, "barrier": true, "cp": true, "stmatrix": true, "prefetch": true, "fence": true, "membar": true,
	"nanosleep": true, "trap": true, "ret": true, "exit": true,
}
