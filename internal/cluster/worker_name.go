package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// WorkerName returns the name of worker n (from 1).
func WorkerName(n int) string { return "worker-" + strconv.Itoa(n) }

// WorkerNumber returns the number in a worker name, or an error for other names.
func WorkerNumber(name string) (int, error) {
	s, ok := strings.CutPrefix(name, "worker-")
	n, err := strconv.Atoi(s)
	if !ok || err != nil || n < 1 || WorkerName(n) != name {
		return 0, fmt.Errorf("%q is not a worker name like worker-7", name)
	}
	return n, nil
}

// CompareNames orders worker names by number, other names after them by text.
func CompareNames(a, b string) int {
	na, ea := WorkerNumber(a)
	nb, eb := WorkerNumber(b)
	switch {
	case ea == nil && eb == nil:
		return na - nb
	case ea == nil:
		return -1
	case eb == nil:
		return 1
	}
	return strings.Compare(a, b)
}
