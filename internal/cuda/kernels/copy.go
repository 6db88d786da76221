package kernels

// Copy moves pieces of one size: it gathers blocks of a pool into one piece of memory,
// scatters them, or moves them between pools.
type Copy struct {
	To, From uint64
	// ToOffsets and FromOffsets are int64 [Pieces], in bytes from To and From, multiples
	// of 16. Pieces must not overlap.
	ToOffsets, FromOffsets uint64
	Pieces                 int
	Bytes                  int // of a piece, a multiple of 16
}

const copyPart = 64 << 10

// Copy copies pieces.
func (q *Queue) Copy(o Copy) error {
	s := shape{op: "copy"}
	s.count("pieces", o.Pieces)
	s.require(o.Bytes > 0 && o.Bytes%16 == 0, "pieces have %d bytes, and must have a positive multiple of 16", o.Bytes)
	s.aligned(o.To, o.From)
	s.present(o.ToOffsets, o.FromOffsets)
	if s.err != nil {
		return s.err
	}
	for from := 0; from < o.Pieces; from += maxGridY {
		skip := uint64(from) * 8
		q.args().Pointer(o.To).Pointer(o.From).Pointer(o.ToOffsets + skip).Pointer(o.FromOffsets + skip).Int64(int64(o.Bytes))
		if err := q.run("copy_pieces", blocks(o.Bytes, copyPart), min(o.Pieces-from, maxGridY), 1, 256, 0); err != nil {
			return err
		}
	}
	return nil
}
