package engine

import (
	"errors"
	"fmt"
)

// ErrBatch is returned by backends when a batch contradicts itself or the model: a token
// or block does not exist, or a block table is too short. Nothing has been computed then.
var ErrBatch = errors.New("invalid batch")

// CheckBatch returns [ErrBatch] if a backend would index outside of its weights, or
// outside of a pool of the given number of blocks.
func CheckBatch(batch []BatchSeq, info BackendInfo, blocks int) error {
	for i := range batch {
		if err := batch[i].check(&info, blocks); err != nil {
			return fmt.Errorf("%w: sequence %d: %w", ErrBatch, i, err)
		}
	}
	return nil
}

func (s *BatchSeq) check(info *BackendInfo, blocks int) error {
	end := s.Start + len(s.Tokens)
	switch {
	case len(s.Tokens) == 0:
		return errors.New("no tokens")
	case s.Start < 0 || end > info.MaxContext:
		return fmt.Errorf("positions %d to %d are not within the context of %d", s.Start, end-1, info.MaxContext)
	case s.Logits != nil && len(s.Logits) < info.VocabSize:
		return fmt.Errorf("room for %d logits, need %d", len(s.Logits), info.VocabSize)
	}
	if s.Rows != nil && len(s.Rows) != len(s.Tokens) {
		return fmt.Errorf("%d embeddings for %d tokens", len(s.Rows), len(s.Tokens))
	}
	if s.Positions != nil && !info.Grids {
		return errors.New("positions in several dimensions, the model has one")
	}
	for _, row := range s.Rows {
		if row != nil && (info.Embedding == 0 || len(row) != info.Embedding) {
			return fmt.Errorf("an embedding of %d values, the model takes %d", len(row), info.Embedding)
		}
	}
	at := 0
	for _, m := range s.Mutual {
		if !info.Mutual || m.Start < at || m.End <= max(m.Start, s.Start) || m.End > end {
			return fmt.Errorf("positions %d to %d cannot attend to each other in an entry of %d to %d", m.Start, m.End-1, s.Start, end-1)
		}
		at = m.End
	}
	needed := (end + info.KV.BlockSize - 1) / info.KV.BlockSize
	if len(s.Blocks) < needed {
		return fmt.Errorf("block table has %d blocks, %d positions need %d", len(s.Blocks), end, needed)
	}
	for _, block := range s.Blocks[:needed] {
		if block < 0 || int(block) >= blocks {
			return fmt.Errorf("block %d is not in the pool of %d", block, blocks)
		}
	}
	for _, id := range s.Tokens {
		if int(id) >= info.VocabSize {
			return fmt.Errorf("token %d is not below the vocabulary of %d", id, info.VocabSize)
		}
	}
	return nil
}
