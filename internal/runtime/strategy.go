package runtime

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Strategy says how a [Balancer] chooses among the routable instances.
type Strategy string

// The strategies. Loads are the calls of the balancer itself that have not ended.
const (
	Random      Strategy = "random"
	RoundRobin  Strategy = "round_robin"
	PowerOfTwo  Strategy = "power_of_two" // the less loaded of two random instances
	LeastLoaded Strategy = "least_loaded" // of equally loaded ones, each in turn
)

// Strategies are all strategies, in the order of their documentation.
var Strategies = []Strategy{Random, RoundRobin, PowerOfTwo, LeastLoaded}

// ParseStrategy reads the name of a strategy.
func ParseStrategy(name string) (Strategy, error) {
	if s := Strategy(name); slices.Contains(Strategies, s) {
		return s, nil
	}
	names := make([]string, len(Strategies))
	for i, s := range Strategies {
		names[i] = string(s)
	}
	return "", fmt.Errorf("unknown strategy %q (want one of %s)", name, strings.Join(names, ", "))
}

// choice is what a strategy decides with.
type choice struct {
	turn uint64 // increases with each decision
	load func(cluster.InstanceID) int
	rand func(n int) int // in [0, n)
}

// pick returns the index of the chosen instance; there is at least one.
func (s Strategy) pick(among []cluster.Instance, c choice) int {
	n := len(among)
	if c.rand == nil {
		c.rand = rand.IntN
	}
	switch s {
	case RoundRobin:
		return int(c.turn % uint64(n)) //nolint:gosec // below n
	case PowerOfTwo:
		a, b := c.rand(n), 0
		if n > 1 {
			if b = c.rand(n - 1); b >= a {
				b++ // another one than a
			}
		}
		if c.load(among[b].InstanceID) < c.load(among[a].InstanceID) {
			return b
		}
		return a
	case LeastLoaded:
		first := int(c.turn % uint64(n)) //nolint:gosec // below n
		best := first
		for i := 1; i < n; i++ {
			if at := (first + i) % n; c.load(among[at].InstanceID) < c.load(among[best].InstanceID) {
				best = at
			}
		}
		return best
	}
	return c.rand(n)
}
