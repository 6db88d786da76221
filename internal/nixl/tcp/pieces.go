package tcp

// pieces walks through memory that consists of several pieces.
type pieces struct {
	segs [][]byte
	seg  int // current piece
	off  int // inside of it
}

// take returns the memory of the next bytes, at most n bytes and limit pieces, and
// moves behind it.
func (p *pieces) take(n uint64, limit int) (out [][]byte, got uint64) {
	for n > 0 && len(out) < limit && p.seg < len(p.segs) {
		b := p.head(n)
		out = append(out, b)
		got += uint64(len(b))
		n -= uint64(len(b))
		p.skip(uint64(len(b)))
	}
	return out, got
}

// ahead returns the memory of the next bytes, at most n bytes and limit pieces, and
// stays where it is.
func (p *pieces) ahead(n uint64, limit int) [][]byte {
	at := *p
	out, _ := at.take(n, limit)
	return out
}

// head returns what is left of the current piece, at most n bytes.
func (p *pieces) head(n uint64) []byte {
	if p.seg == len(p.segs) {
		return nil
	}
	b := p.segs[p.seg][p.off:]
	return b[:min(uint64(len(b)), n)]
}

// skip moves n bytes ahead.
func (p *pieces) skip(n uint64) {
	for n > 0 && p.seg < len(p.segs) {
		left := uint64(len(p.segs[p.seg]) - p.off)
		if n < left {
			p.off += int(n)
			return
		}
		n -= left
		p.seg, p.off = p.seg+1, 0
	}
}
