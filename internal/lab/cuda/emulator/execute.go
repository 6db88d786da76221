package emulator

// execute runs an instruction for some lanes. Loops go over all lanes, which is quicker,
// and keep the results of some.
func (w *warp) execute(in *instr, mask uint32) {
	if in.op == opRun {
		in.run(w, in, mask)
		return
	}
	a, b := &w.r[in.a], &w.r[in.b]
	switch in.op {
	case opCompareInteger:
		w.setPredicate(in.p, runCompareInteger(in, a, b), mask)
		return
	case opCompareFloat32:
		w.setPredicate(in.p, compareFloat32(in.compare, a, b), mask)
		return
	}
	c, d := &w.r[in.c], &w.r[in.d]
	if mask != allLanes {
		d = &w.scratch
	}
	switch in.op {
	case opInteger:
		runInteger(in, d, a, b, c)
	case opFloat32:
		runFloat32(in, d, a, b, c)
	case opMove:
		if in.mask == ^uint64(0) {
			*d = *a
			break
		}
		fallthrough
	case opMask:
		for i := range d {
			d[i] = a[i] & in.mask
		}
	case opSignExtend:
		for i := range d {
			d[i] = uint64(int64(int32(a[i])))
		}
	case opSelect:
		q := w.predicate(in.q, in.notQ)
		for i := range d {
			v := b[i]
			if q>>i&1 != 0 {
				v = a[i]
			}
			d[i] = v
		}
	case opPermute:
		for i := range d {
			d[i] = permute(a[i], b[i], c[i])
		}
	case opPackBF16:
		for i := range d {
			d[i] = narrowBF16(float(a[i]))<<16 | narrowBF16(float(b[i]))
		}
	case opLane:
		for i := range d {
			d[i] = in.lane(a[i], b[i], c[i]) & in.mask
		}
	}
	if mask != allLanes {
		w.put(in.d, d, mask)
	}
}
