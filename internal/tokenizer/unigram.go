package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
)

// unknownPenalty is the distance of an unknown character's score below the worst token's.
const unknownPenalty = 10

// unigram picks the segmentation with the highest total score.
type unigram struct {
	ids          map[string]uint32
	scores       []float64
	trie         *byteTrie
	unknown      int64 // id, or -1
	unknownScore float64
	byteFallback bool
	bytes        [256]int64 // ids of <0x00>…<0xFF>, or -1
}

func parseUnigram(raw json.RawMessage, lim limits) (*modelBuild, error) {
	var j struct {
		Vocab        []json.RawMessage
		UnkID        *int64 `json:"unk_id"`
		ByteFallback bool   `json:"byte_fallback"`
	}
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	if len(j.Vocab) > lim.tokens {
		return nil, fmt.Errorf("%w: %d tokens, limit %d", ErrTooLarge, len(j.Vocab), lim.tokens)
	}
	if len(j.Vocab) == 0 {
		return nil, fmt.Errorf("%w: empty vocabulary", ErrVocabulary)
	}
	u := &unigram{
		ids: make(map[string]uint32, len(j.Vocab)), scores: make([]float64, len(j.Vocab)), trie: newByteTrie(),
		unknown: -1, byteFallback: j.ByteFallback,
	}
	if j.UnkID != nil {
		if *j.UnkID < 0 || *j.UnkID >= int64(len(j.Vocab)) {
			return nil, fmt.Errorf("%w: unk_id %d of %d tokens", ErrVocabulary, *j.UnkID, len(j.Vocab))
		}
		u.unknown = *j.UnkID
	}
	entries := make([]vocabEntry, len(j.Vocab))
	lowest := math.Inf(1)
	for i, raw := range j.Vocab {
		var token string
		var score float64
		row := []any{&token, &score}
		if err := unmarshal(raw, &row); err != nil {
			return nil, fmt.Errorf("token %d: %w", i, err)
		}
		if len(row) != 2 || row[0] == nil || row[1] == nil {
			return nil, fmt.Errorf("%w: token %d is not [text, score]", ErrMalformed, i)
		}
		if len(token) > lim.wordPiece {
			return nil, fmt.Errorf("%w: token %d has %d bytes, limit %d", ErrTooLarge, i, len(token), lim.wordPiece)
		}
		entries[i] = vocabEntry{token, uint32(i)}
		u.ids[token] = uint32(i) // of equal tokens the last one counts
		u.scores[i] = score
		lowest = min(lowest, score)
	}
	u.unknownScore = lowest - unknownPenalty
	for token, id := range u.ids {
		u.trie.insert(token, int32(id))
	}
	for b := range u.bytes {
		u.bytes[b] = -1
		if id, ok := u.ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			u.bytes[b] = int64(id)
		}
	}
	finish := func(bool) (model, bool, error) { return u, false, nil }
	return &modelBuild{entries, false, finish}, nil
}

// latticeNode is the best way to reach a position.
type latticeNode struct {
	score float64
	start int32 // of the last token; -1 = not reached
	id    int32 // of that token; -1 = unknown without an unknown token
}

type latticeSpan struct {
	span
	id int32
}

// longestAt returns how many bytes of s from i a token can stand for. Characters that are no
// token may be part of an unknown text of any length.
func (u *unigram) longestAt(s string, i int) (bytes int, free bool) {
	node, size := uint32(0), min(charLen(s[i]), len(s)-i)
	bytes, free = size, true
	for j := i; j < len(s); j++ {
		if node = u.trie.child(node, s[j]); node == 0 {
			break
		}
		if u.trie.value[node] >= 0 {
			bytes, free = max(bytes, j+1-i), free && j+1 != i+size
		}
	}
	return bytes, free
}

func (u *unigram) encode(e *encoder, s string) {
	if e.tooLong(s, 0, u.longestAt) {
		return
	}
	if cap(e.lattice) <= len(s) {
		e.lattice = make([]latticeNode, len(s)+1)
	}
	best := e.lattice[:len(s)+1]
	for i := range best {
		best[i] = latticeNode{start: -1}
	}
	reach := func(end, start int, score float64, id int32) {
		if n := &best[end]; n.start < 0 || score > n.score {
			*n = latticeNode{score, int32(start), id}
		}
	}
	for i := 0; i < len(s); {
		size := charLen(s[i])
		here := best[i].score
		single := false
		node := uint32(0)
		for j := i; j < len(s); j++ {
			if node = u.trie.child(node, s[j]); node == 0 {
				break
			}
			if id := u.trie.value[node]; id >= 0 {
				reach(j+1, i, here+u.scores[id], id)
				single = single || j+1 == i+size
			}
		}
		if !single {
			reach(i+size, i, here+u.unknownScore, int32(u.unknown))
		}
		i += size
	}

	path := e.path[:0]
	for end := len(s); end > 0; {
		n := best[end]
		path = append(path, latticeSpan{span{int(n.start), end}, n.id})
		end = int(n.start)
	}
	e.path = path
	for i := len(path) - 1; i >= 0; i-- {
		p := path[i]
		if p.id < 0 {
			e.fail(ErrUnknownText)
			continue
		}
		if int64(p.id) != u.unknown {
			e.ids = append(e.ids, uint32(p.id))
			continue
		}
		for i > 0 && int64(path[i-1].id) == u.unknown { // neighboring unknowns are one
			i--
			p.end = path[i].end
		}
		u.encodeUnknown(e, s[p.start:p.end])
	}
}

// encodeUnknown writes text the vocabulary has no pieces for.
func (u *unigram) encodeUnknown(e *encoder, s string) {
	if id, ok := u.ids[s]; ok {
		e.ids = append(e.ids, id)
		return
	}
	if u.byteFallback {
		start := len(e.ids)
		for i := range len(s) {
			id := u.bytes[s[i]]
			if id < 0 {
				e.ids = append(e.ids[:start], uint32(u.unknown))
				return
			}
			e.ids = append(e.ids, uint32(id))
		}
		return
	}
	e.ids = append(e.ids, uint32(u.unknown))
}
