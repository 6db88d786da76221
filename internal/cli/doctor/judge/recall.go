package judge

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cli/human"
)

// LocalRecall judges the answer of a decode worker that computed everything itself, where
// others answered right.
func LocalRecall(decode string, right bool) Finding {
	if right {
		return good("%s answers without a transfer", decode)
	}
	return Bad("dynctl logs "+decode+", and dynlab bench accuracy on its node", "%s answers wrong even without a transfer, other workers do not", decode)
}

// Transferred is an answer out of a prompt that a prefill worker should have read.
type Transferred struct {
	Decode  string // who answered
	Wanted  string // who should have read the prompt; empty: whom the cluster chose
	Prefill string // who did; empty: the decode worker itself
	Why     string // it did so, if it is told
	Right   bool
}

// Judge says whether the KV blocks arrived whole.
func (r Transferred) Judge() Finding {
	switch {
	case r.Prefill == "":
		fix := "dynctl logs " + r.Decode
		if r.Wanted != "" {
			fix = fmt.Sprintf("dynctl explain path %s %s", r.Wanted, r.Decode)
		}
		return Bad(fix, "%s prefilled the prompt itself: %s", r.Decode, human.OrDash(r.Why))
	case r.Wanted != "" && r.Prefill != r.Wanted:
		return Bad("dynctl logs "+r.Wanted, "%s failed, %s prefilled in its place", r.Wanted, r.Prefill)
	case r.Right:
		return good("%s knows what %s has read", r.Decode, r.Prefill)
	}
	return Bad(fmt.Sprintf("dynctl explain path %s %s, and another transport: --nixl-transports tcp", r.Prefill, r.Decode),
		"%s cannot answer about a prompt that %s prefilled: the KV blocks arrived damaged", r.Decode, r.Prefill)
}
