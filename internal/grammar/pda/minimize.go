package pda

import (
	"encoding/binary"
	"slices"
)

// minimizeWork bounds the refinement of all rules together, in edges looked at. A
// rule for which it is not enough stays as it is: subset construction leaves little
// to merge.
const minimizeWork = 2_000_000

// minimize merges equivalent states by refining the partition of the states until
// it is stable.
func (d *dfa) minimize(budget *int) *dfa {
	n := len(d.states)
	edges := 0
	for i := range d.states {
		edges += 1 + len(d.states[i].bytes) + len(d.states[i].calls)
	}
	class := make([]int32, n)
	next := make([]int32, n)
	for classes := 1; ; {
		if *budget -= edges; *budget < 0 {
			return d
		}
		numbers := make(map[string]int32, classes)
		var key []byte
		for i := range d.states {
			key = d.signature(key[:0], i, class)
			c, ok := numbers[string(key)]
			if !ok {
				c = int32(len(numbers))
				numbers[string(key)] = c
			}
			next[i] = c
		}
		class, next = next, class
		if len(numbers) == classes {
			break
		}
		classes = len(numbers)
	}
	return d.merged(class)
}

// signature appends the data in which two states must agree to stay in one class.
func (d *dfa) signature(key []byte, i int, class []int32) []byte {
	st := &d.states[i]
	key = binary.LittleEndian.AppendUint32(key, uint32(class[i]))
	if st.accept {
		key = append(key, 1)
	}
	// Ranges that lead to the same class count as one.
	for j := 0; j < len(st.bytes); {
		e := st.bytes[j]
		to := class[e.to]
		for j++; j < len(st.bytes) && class[st.bytes[j].to] == to && int(st.bytes[j].lo) == int(e.hi)+1; j++ {
			e.hi = st.bytes[j].hi
		}
		key = append(key, 'b', e.lo, e.hi)
		key = binary.LittleEndian.AppendUint32(key, uint32(to))
	}
	for _, c := range st.calls {
		key = append(key, 'c')
		key = binary.LittleEndian.AppendUint32(key, uint32(c.rule))
		key = binary.LittleEndian.AppendUint32(key, uint32(class[c.to]))
	}
	return key
}

// merged keeps one state per class. States get their numbers in the order in which
// their classes appear, so the start stays 0.
func (d *dfa) merged(class []int32) *dfa {
	out := &dfa{}
	first := map[int32]int32{}
	for i := range d.states {
		if _, ok := first[class[i]]; !ok {
			first[class[i]] = int32(len(out.states))
			out.states = append(out.states, d.states[i])
		}
	}
	for i := range out.states {
		st := &out.states[i]
		st.bytes, st.calls = slices.Clone(st.bytes), slices.Clone(st.calls)
		for j := range st.bytes {
			st.bytes[j].to = first[class[st.bytes[j].to]]
		}
		for j := range st.calls {
			st.calls[j].to = first[class[st.calls[j].to]]
		}
		st.bytes = joinEdges(st.bytes)
	}
	return out
}
