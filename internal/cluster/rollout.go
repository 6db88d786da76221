package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// Rollout limits how many workers of a role change at the same time. Each field is a
// number of workers, such as "4", or a share of the workers that the role should have, such as
// "25%". A share is rounded down, to at least 1. Empty means DefaultRollout.
type Rollout struct {
	// MaxSurge limits the successors that start before the workers that they replace
	// leave. With "0", workers change in place while others of their role serve.
	MaxSurge string `json:"max_surge,omitempty"`
	// MaxUnavailable limits the workers that do not serve. With "0", a worker stops only
	// for a successor that serves, or for an order to restart it alone.
	MaxUnavailable string `json:"max_unavailable,omitempty"`
}

// DefaultRollout is the limit where none is set.
const DefaultRollout = "25%"

// RolloutForm says what the fields of a [Rollout] hold.
const RolloutForm = "a number of workers like 4, or a share of them from 1% to 100%"

// CheckRollout reports what is wrong with one field of a Rollout.
func CheckRollout(text string) error {
	if text == "" {
		return nil
	}
	_, err := limit(text, 0)
	return err
}

// Over returns r where it is set, and otherwise the fields of base.
func (r Rollout) Over(base Rollout) Rollout {
	if r.MaxSurge == "" {
		r.MaxSurge = base.MaxSurge
	}
	if r.MaxUnavailable == "" {
		r.MaxUnavailable = base.MaxUnavailable
	}
	return r
}

// Limits returns how many of a role's workers may be successors, and how many may not
// serve. A field that cannot be read counts as DefaultRollout.
func (r Rollout) Limits(workers int) (surge, unavailable int) {
	read := func(text string) int {
		n, err := limit(text, workers)
		if err != nil {
			n, _ = limit(DefaultRollout, workers)
		}
		return n
	}
	return read(r.MaxSurge), read(r.MaxUnavailable)
}

func limit(text string, workers int) (int, error) {
	digits, share := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || share && (n < 1 || n > 100) {
		return 0, fmt.Errorf("%q is not %s", text, RolloutForm)
	}
	if share {
		return max(int(n)*workers/100, 1), nil
	}
	return int(n), nil
}
