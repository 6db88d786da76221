package tokenizer

import "slices"

// Stream decodes a sequence while it grows. The texts returned by Push and the final
// Flush, put together, are what Decode returns for all ids at once. Text is held back
// while it ends in an incomplete character. There is one exception. In a run of byte
// fallback tokens (<0xNN>) that turns out not to be UTF-8, the characters already
// returned stay, where Decode replaces every byte of the run.
//
// A Stream is not safe for concurrent use.
type Stream struct {
	t     *Tokenizer
	skip  bool
	keep  []uint32 // special tokens that leave text nevertheless
	whole bool
	chain decodeSink // nil for ByteLevel alone, which needs none
	out   collector
	bytes []byte // for ByteLevel alone: not yet shown
}

// NewStream starts decoding a sequence. With skipSpecial, special tokens leave
// no text.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream { return t.newStream(skipSpecial, false) }

func (t *Tokenizer) newStream(skipSpecial, whole bool) *Stream {
	s := &Stream{t: t, skip: skipSpecial, whole: whole}
	s.open()
	return s
}

// Keep makes some special tokens leave their text where others do not. Call it
// before the first Push.
func (s *Stream) Keep(ids []uint32) { s.keep = ids }

func (s *Stream) open() {
	if s.t.byteDecoder {
		return
	}
	s.chain = &s.out
	for i := len(s.t.decoder) - 1; i >= 0; i-- {
		s.chain = s.t.decoder[i].open(s.chain, s.whole)
	}
}

// Push adds ids to the sequence and returns the text that has become final.
func (s *Stream) Push(ids ...uint32) string {
	s.push(ids)
	return s.take(false)
}

func (s *Stream) push(ids []uint32) {
	for _, id := range ids {
		token, ok := s.t.vocab.token(id)
		switch {
		case !ok, s.skip && s.t.vocab.special[id] && !slices.Contains(s.keep, id):
		case s.chain == nil:
			s.bytes = append(s.bytes, s.t.raw[id]...)
		default:
			s.chain.put(token, true, true)
		}
	}
}

// Flush ends the sequence and returns the text still held back. The stream is
// then ready for another sequence.
func (s *Stream) Flush() string {
	if s.chain != nil {
		s.chain.close()
	}
	text := s.take(true)
	s.open()
	return text
}

// take returns the text that is certain, or all of it.
func (s *Stream) take(all bool) string {
	if s.chain == nil {
		out, rest := appendLossy(s.out.out, s.bytes, all)
		s.out.out = out
		s.bytes = append(s.bytes[:0], rest...)
	}
	return s.out.take()
}
