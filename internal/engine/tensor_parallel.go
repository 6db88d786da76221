package engine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// KVPool is the memory of a block pool, by tensor-parallel rank: rank r of n has, of each
// block, the r-th of n equal shares of the KV heads, as a block of [kvlayout.Shape.Rank].
type KVPool []KVMemory

// Close releases the memory of all ranks.
func (p KVPool) Close() error {
	errs := make([]error, len(p))
	for i, m := range p {
		errs[i] = m.Close()
	}
	return errors.Join(errs...)
}

// CheckTensorParallel refuses a number of ranks that cannot share query heads and KV
// heads evenly, and names those that can.
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
