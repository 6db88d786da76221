package wire

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/protocol"
)

// minLogprob is the least value that protocol.Logprobs has.
const minLogprob = -9999

// Candidate is a token with its log probability.
type Candidate struct {
	ID    uint32
	Value float32
}

// AddLogprob appends the value of a token, and the width most likely candidates of its
// position in order. It reports false if there are fewer.
func AddLogprob(l *protocol.Logprobs, value float32, top []Candidate, width int) bool {
	l.Width = width
	l.Tokens = append(l.Tokens, max(value, minLogprob))
	if len(top) < width {
		return false
	}
	slices.SortStableFunc(top, func(a, b Candidate) int {
		switch {
		case a.Value > b.Value:
			return -1
		case a.Value < b.Value:
			return 1
		}
		return int(int64(a.ID) - int64(b.ID))
	})
	for _, c := range top[:width] {
		l.TopIDs = append(l.TopIDs, c.ID)
		l.TopValues = append(l.TopValues, max(c.Value, minLogprob))
	}
	return true
}

// TokenID reads a token in the form token_id:7, in which vLLM tells tokens that may be no
// text.
func TokenID(s string) (uint32, bool) {
	digits, ok := strings.CutPrefix(s, "token_id:")
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 32)
	return uint32(id), err == nil
}
