package tokenizer

// keepScratch bounds what an encoder keeps between texts, in elements of its largest
// buffers, so that one huge prompt does not pin its memory forever.
const keepScratch = 1 << 18

// encoder is the working memory of one Encode call.
type encoder struct {
	t    *Tokenizer
	ids  []uint32
	err  error // first failure; encoding continues without the part that failed
	bufs [][]span

	limited bool // there may be most ids
	most    int
	over    bool // there are more
	pieces  int  // encoded so far

	symbols symbolBuf
	lattice []latticeNode
	path    []latticeSpan
}

// fail records the first error.
func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// text encodes one text, without post-processing.
func (e *encoder) text(s string) {
	e.t.rawTokens.cut(s, func(start, end int, token *AddedToken) bool {
		if token != nil {
			e.ids = append(e.ids, token.ID)
			return !e.full()
		}
		p := piece{s[start:end], start == 0}
		for _, n := range e.t.normalizers {
			var err error
			if p, err = n.normalize(p); err != nil {
				e.fail(err)
			}
		}
		e.t.normTokens.cut(p.s, func(start, end int, token *AddedToken) bool {
			if token != nil {
				e.ids = append(e.ids, token.ID)
			} else {
				e.emit(piece{p.s[start:end], p.first && start == 0}, 0)
			}
			return !e.full()
		})
		return !e.full()
	})
}

// emit hands a piece to the pre-tokenizer of the given level, or to the model
// after the last one.
func (e *encoder) emit(p piece, level int) {
	switch {
	case p.s == "", e.over:
	case level < len(e.t.preTokenizers):
		e.t.preTokenizers[level].split(e, p, level)
	default:
		e.breathe()
		e.t.model.encode(e, p.s)
		e.full()
	}
}

func (e *encoder) takeSpans() []span {
	if n := len(e.bufs); n > 0 {
		b := e.bufs[n-1]
		e.bufs = e.bufs[:n-1]
		return b
	}
	return nil
}

func (e *encoder) giveSpans(b []span) {
	if cap(b) <= keepScratch {
		e.bufs = append(e.bufs, b[:0])
	}
}

// release returns the encoder to the pool.
func (e *encoder) release() {
	e.ids, e.err = nil, nil
	e.limited, e.most, e.over, e.pieces = false, 0, false, 0
	if max(cap(e.lattice), cap(e.path)) > keepScratch {
		e.lattice, e.path = nil, nil
	}
	e.symbols.trim()
	e.t.encoders.Put(e)
}
