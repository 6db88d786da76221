package patience

import "testing"

// Allocs returns the allocations of one call of f: the least of three measurements with
// runs calls each. Now and then the Go runtime allocates beside f, for example for the
// goroutines that wait after a collection; what f itself allocates is in all three.
func Allocs(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 2 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
