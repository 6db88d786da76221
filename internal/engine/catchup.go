package engine

import "slices"

// catchUp gives a prompt the blocks that others have computed since it was admitted. It
// reports whether the current step computes the prompt's next block for another one, so
// that it should wait. Prompts that come at once are thus computed once, as far as they
// are equal. The last token is always computed.
func (e *Engine) catchUp(s *sequence) (wait bool) {
	bs := e.info.KV.BlockSize
	hashes := s.matchable(bs)
	hashes = hashes[:min(len(hashes), (len(s.tokens)-1)/bs)]
	from := s.computed / bs
	k := from
	for ; k < len(hashes); k++ {
		id, found := e.pool.byHash[hashes[k]]
		if !found {
			wait = e.computes(hashes[k], k)
			break
		}
		if k == from {
			s.blocks = slices.Clone(s.blocks) // others may have the table
		}
		e.pool.ref(id)
		e.pool.Release(s.blocks[k : k+1])
		s.blocks[k] = id
	}
	if n := k*bs - s.computed; n > 0 {
		s.computed, s.registered, s.cached = k*bs, k, s.cached+n
		e.count.CachedTokensTotal += uint64(n)
		if s.gen != nil && s.gen.first != nil {
			s.gen.first.Cached += n
		}
	}
	return wait
}

// computes reports whether the current step computes tokens of block k of a prompt, which
// has that hash.
func (e *Engine) computes(hash uint64, k int) bool {
	bs := e.info.KV.BlockSize
	for i, s := range e.parts { // none is more than a block behind, or it would catch up
		b := &e.batch[i]
		if k < len(s.chain.Seq) && s.chain.Seq[k] == hash && b.Start < (k+1)*bs {
			return true
		}
	}
	return false
}
