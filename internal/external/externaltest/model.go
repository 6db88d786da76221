package externaltest

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// NoEOS is an end token that no model generates.
const NoEOS = ^uint32(0)

// Hash is the default model: the token after ids, of so many.
func Hash(vocab uint32) func(ids []uint32) uint32 {
	return func(ids []uint32) uint32 {
		h := fnv.New64a()
		var b [4]byte
		for _, id := range ids {
			binary.LittleEndian.PutUint32(b[:], id)
			h.Write(b[:])
		}
		v := h.Sum64()
		return uint32((v ^ v>>29) % uint64(vocab)) // #nosec G115 -- below vocab
	}
}

// Continue returns the n tokens after a prompt, without any end.
func Continue(next func([]uint32) uint32, prompt []uint32, n int) []uint32 {
	all := slices.Clone(prompt)
	for range n {
		all = append(all, next(all))
	}
	return all[len(prompt):]
}

// Adapted is the model with a LoRA adapter: its answers are others.
func Adapted(next func([]uint32) uint32, vocab uint32, adapter string) func([]uint32) uint32 {
	shift := uint32(0)
	for _, b := range []byte(adapter) {
		shift = shift*31 + uint32(b)
	}
	shift = 1 + shift%(vocab-1)
	return func(ids []uint32) uint32 { return (next(ids) + shift) % vocab }
}

// Text is how a double writes tokens.
func Text(ids []uint32) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "t%d ", id)
	}
	return b.String()
}

// PromptOf is the prompt that a double makes of a text or of the messages of a chat: a token
// for each byte.
func PromptOf(raw []byte) []uint32 {
	ids := make([]uint32, len(raw))
	for i, b := range raw {
		ids[i] = uint32(b)
	}
	return ids
}

// Logprob is what a double tells of a token after ids: the same wherever it is computed.
func Logprob(ids []uint32, id uint32) float32 {
	return -float32((uint64(id)*2654435761+uint64(len(ids)))%997)/64 - 0.25
}

// Top returns the k most likely tokens after ids, as a double tells them.
func Top(ids []uint32, vocab uint32, k int) []uint32 {
	all := make([]uint32, vocab)
	for i := range all {
		all[i] = uint32(i) // #nosec G115 -- below vocab
	}
	slices.SortStableFunc(all, func(a, b uint32) int {
		x, y := Logprob(ids, a), Logprob(ids, b)
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return all[:k]
}

// sequence generates one answer.
type sequence struct {
	d      *Double
	model  func(ids []uint32) uint32
	ids    []uint32 // prompt and answer
	prompt int
	max    int
	min    int
	stop   []uint32 // and the model's own end, unless it is ignored
}

// next generates a token. reason is set with the last one.
func (s *sequence) next() (id uint32, reason string) {
	for skip := uint32(0); ; skip++ {
		id = (s.model(s.ids) + skip) % s.d.o.Vocab
		if !slices.Contains(s.stop, id) || s.made() >= s.min {
			break
		}
	}
	s.ids = append(s.ids, id)
	switch {
	case slices.Contains(s.stop, id):
		return id, "stop"
	case s.made() >= s.max:
		return id, "length"
	}
	return id, ""
}

// made counts the tokens of the answer.
func (s *sequence) made() int { return len(s.ids) - s.prompt }

// text is how the server writes a token: not the end.
func (s *sequence) text(id uint32, reason string) string {
	if reason == "stop" {
		return ""
	}
	return Text([]uint32{id})
}

// with has an adapter generate the answer, if the model that was asked for is one.
func (s *sequence) with(model string) *sequence {
	if slices.Contains(s.d.o.Loras, model) {
		s.model = Adapted(s.d.o.Next, s.d.o.Vocab, model)
	}
	return s
}

func (d *Double) sequence(prompt []uint32, most, least int, stop []uint32, ignoreEOS bool) *sequence {
	stop = slices.Clone(stop)
	if !ignoreEOS {
		stop = append(stop, d.o.EOS)
	}
	return &sequence{d: d, model: d.o.Next, ids: slices.Clone(prompt), prompt: len(prompt), max: most, min: least, stop: stop}
}
