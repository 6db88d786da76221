package tokenizer

// keepScratch bounds what an encoder keeps between texts, in elements of its
// largest buffers; one huge prompt must not pin its memory for ever.
const keepScratch = 1 << 18

// encoder is the working memory of one Encode call.
type encoder struct {
	t    *Tokenizer
	ids  []uint32
	err  error // first failure; encoding goes on without the part that failed
	bufs [][]span

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
	e.t.rawTokens.cut(s, func(start, end int, token *AddedToken) {
		if token != nil {
			e.ids = append(e.ids, token.ID)
			return
		}
		p := piece{s[start:end], start == 0}
		for _, n := range e.t.normalizers {
			var err error
			if p, err = n.normalize(p); err != nil {
				e.fail(err)
			}
		}
		e.t.normTokens.cut(p.s, func(start, end int, token *AddedToken) {
			if token != nil {
				e.ids = append(e.ids, token.ID)
				return
			}
			e.emit(piece{p.s[start:end], p.first && start == 0}, 0)
		})
	})
}

// emit hands a piece to the pre-tokenizer of the given level, or to the model
// after the last one.
func (e *encoder) emit(p piece, level int) {
	switch {
	case p.s == "":
	case level < len(e.t.preTokenizers):
		e.t.preTokenizers[level].split(e, p, level)
	default:
		e.t.model.encode(e, p.s)
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

// release gives the encoder back for reuse.
func (e *encoder) release() {
	e.ids, e.err = nil, nil
	if max(cap(e.lattice), cap(e.path)) > keepScratch {
		e.lattice, e.path = nil, nil
	}
	e.symbols.trim()
	e.t.encoders.Put(e)
}
