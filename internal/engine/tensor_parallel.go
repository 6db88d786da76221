package engine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// KVPool is the memory of a block pool, one element per tensor-parallel rank. Rank r of n
// holds, of each block, the r-th of n equal shares of the KV heads, as a block of
// [kvlayout.Shape.Rank].
type KVPool []KVMemory

// Close releases the memory of all ranks.
func (p KVPool) Close() error {
	errs := make([]error, len(p))
	for i, m := range p {
		errs[i] = m.Close()
	}
	return errors.Join(errs...)
}

// CheckTensorParallel returns an error if n ranks cannot share query heads and KV heads
// evenly. The error lists the numbers of ranks that can.
func CheckTensorParallel(n, heads, kvHeads int) error {
	if n >= 1 && heads%n == 0 && kvHeads%n == 0 {
		return nil
	}
	var can []string
	for d := 1; d <= kvHeads; d++ {
		if heads%d == 0 && kvHeads%d == 0 {
			can = append(can, strconv.Itoa(d))
		}
	}
	return fmt.Errorf("tensor parallel: %d ranks cannot share %d query heads and %d KV heads evenly, possible are %s",
		n, heads, kvHeads, strings.Join(can, ", "))
}
