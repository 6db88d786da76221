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
	n, ok := workerNumber(name)
	if !ok {
		return 0, fmt.Errorf("%q is not a worker name like worker-7", name)
	}
	return n, nil
}

// workerNumber is WorkerNumber without an error to allocate.
func workerNumber(name string) (n int, ok bool) {
	s, ok := strings.CutPrefix(name, "worker-")
	if !ok || s == "" || s[0] < '1' || s[0] > '9' { // no sign, and no 0 in front
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// CompareNames orders worker names by number, other names after them by text.
func CompareNames(a, b string) int {
	na, oka := workerNumber(a)
	nb, okb := workerNumber(b)
	switch {
	case oka && okb:
		return na - nb
	case oka:
		return -1
	case okb:
		return 1
	}
	return strings.Compare(a, b)
}
